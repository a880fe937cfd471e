"""Find the price of an engine. Pure.

A price for the replica's name has priority. If there is no such price, the engine's price is the
sum of the prices of its GPUs. An engine has tensor-parallel × pipeline-parallel GPUs. An unknown
price is None, not $0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

HOUR_S = 3_600


@dataclass(frozen=True, slots=True)
class PriceOrigin:
    """The source of a price, with its page and date."""

    source: str
    page: str | None = None
    date: str | None = None

    def __str__(self) -> str:
        return self.source if self.date is None else f"{self.source}, {self.date}"


@dataclass(frozen=True, slots=True)
class DevicePrice:
    """Price of one device per hour. `regions` contains the regions with a different price."""

    name: str
    match: tuple[str, ...]
    usd_per_hour: float
    origin: PriceOrigin
    regions: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicaPrice:
    """Price of a whole engine per hour. `match` contains patterns of replica names."""

    match: tuple[str, ...]
    usd_per_hour: float
    origin: PriceOrigin


@dataclass(frozen=True, slots=True)
class ManagedModel:
    """A managed model. `match` contains patterns of served names. `provider` and `model` are the
    names in genai-prices."""

    match: tuple[str, ...]
    provider: str
    model: str


@dataclass(frozen=True, slots=True)
class Carbon:
    """Emissions per kilowatt-hour of electricity. `match` contains patterns of region names."""

    name: str
    match: tuple[str, ...]
    g_per_kwh: float
    origin: PriceOrigin


@dataclass(frozen=True, slots=True)
class Overhead:
    """Power usage effectiveness: a data centre's power divided by its computers' power."""

    ratio: float
    origin: PriceOrigin


@dataclass(frozen=True, slots=True)
class EnginePrice:
    """The price of an engine, and its source."""

    usd_per_s: float
    what: str
    devices: int
    origin: PriceOrigin

    @property
    def usd_per_hour(self) -> float:
        """Price in USD per hour."""
        return self.usd_per_s * HOUR_S


class _Matching(Protocol):
    @property
    def match(self) -> tuple[str, ...]: ...


_Entry = TypeVar("_Entry", bound=_Matching)


@dataclass(frozen=True, slots=True)
class PriceList:
    """The price list. If several entries match, the first entry applies."""

    devices: tuple[DevicePrice, ...] = ()
    replicas: tuple[ReplicaPrice, ...] = ()
    managed: tuple[ManagedModel, ...] = ()
    carbon: tuple[Carbon, ...] = ()
    pue: Overhead | None = None

    def before(self, later: "PriceList") -> "PriceList":
        """Return these prices, followed by the prices of `later`."""
        return PriceList(
            self.devices + later.devices,
            self.replicas + later.replicas,
            self.managed + later.managed,
            self.carbon + later.carbon,
            self.pue or later.pue,
        )

    def rate(
        self,
        *,
        replica: str | None = None,
        device: str | None = None,
        gpus: int | None = None,
        region: str | None = None,
    ) -> EnginePrice | None:
        """The price of an engine, or None if no entry matches.

        Args:
            device: as in `EngineStart.device`.
            gpus: number of devices. None or 0 means one device, such as a CPU.
        """
        named = _first_match(self.replicas, replica)
        if named is not None:
            return EnginePrice(named.usd_per_hour / HOUR_S, replica or "", 1, named.origin)
        priced = _first_match(self.devices, device)
        if priced is None:
            return None
        number = gpus or 1
        usd_per_hour = priced.regions.get(region or "", priced.usd_per_hour)
        return EnginePrice(usd_per_hour * number / HOUR_S, priced.name, number, priced.origin)

    def managed_model(self, model: str | None) -> ManagedModel | None:
        """The managed model that corresponds to a served model."""
        return _first_match(self.managed, model)

    def carbon_of(self, region: str | None) -> Carbon | None:
        """The emissions of a region. An unknown region matches only an entry that matches every
        name."""
        return _first_match(self.carbon, region or "unknown")


def _first_match(entries: Sequence[_Entry], name: str | None) -> _Entry | None:
    if name is None:
        return None
    low = name.lower()
    for entry in entries:
        if any(fnmatchcase(low, pattern.lower()) for pattern in entry.match):
            return entry
    return None
