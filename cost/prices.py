"""What a second of an engine costs, by what it runs on.

Pure. An engine's price is that of all its GPUs (tensor- by pipeline-parallel size), or what is
said of its replica by name. What has no price is None: a cost that nobody knows is not $0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

HOUR_S = 3_600


@dataclass(frozen=True, slots=True)
class Origin:
    """Who says so: a source by name, its page, and the date as of which it holds."""

    source: str
    page: str | None = None
    date: str | None = None

    def __str__(self) -> str:
        return self.source if self.date is None else f"{self.source}, {self.date}"


@dataclass(frozen=True, slots=True)
class DevicePrice:
    """An hour of one device. `regions` has what it costs in some of them."""

    name: str
    match: tuple[str, ...]
    usd_per_hour: float
    origin: Origin
    regions: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicaPrice:
    """An hour of one engine of some replicas, all its devices together."""

    match: tuple[str, ...]
    usd_per_hour: float
    origin: Origin


@dataclass(frozen=True, slots=True)
class ManagedModel:
    """The model of a managed API that stands for served ones, by genai-prices' names."""

    match: tuple[str, ...]
    provider: str
    model: str


@dataclass(frozen=True, slots=True)
class Carbon:
    """What a kilowatt-hour emits in some regions."""

    name: str
    match: tuple[str, ...]
    g_per_kwh: float
    origin: Origin


@dataclass(frozen=True, slots=True)
class Overhead:
    """Power usage effectiveness: what a data centre draws for each watt of its computers."""

    ratio: float
    origin: Origin


@dataclass(frozen=True, slots=True)
class Rate:
    """The price of an engine, and how it came about."""

    usd_per_s: float
    what: str
    devices: int
    origin: Origin

    @property
    def usd_per_hour(self) -> float:
        """As price lists have it."""
        return self.usd_per_s * HOUR_S


class _Matching(Protocol):
    @property
    def match(self) -> tuple[str, ...]: ...


_Entry = TypeVar("_Entry", bound=_Matching)


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices in force; of several entries that match, the first."""

    devices: tuple[DevicePrice, ...] = ()
    replicas: tuple[ReplicaPrice, ...] = ()
    managed: tuple[ManagedModel, ...] = ()
    carbon: tuple[Carbon, ...] = ()
    pue: Overhead | None = None

    def before(self, later: "PriceList") -> "PriceList":
        """These, and after them those of another list."""
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
    ) -> Rate | None:
        """What a second of an engine costs; None where no entry matches.

        Args:
            replica: its name; an entry for it goes before its device's.
            device: what it runs on, as `EngineStart.device`.
            gpus: how many of it; None for one, as on a CPU.
            region: where.
        """
        named = _first(self.replicas, replica)
        if named is not None:
            return Rate(named.usd_per_hour / HOUR_S, replica or "", 1, named.origin)
        priced = _first(self.devices, device)
        if priced is None:
            return None
        number = 1 if gpus is None else gpus
        usd_per_hour = priced.regions.get(region or "", priced.usd_per_hour)
        return Rate(usd_per_hour * number / HOUR_S, priced.name, number, priced.origin)

    def managed_model(self, model: str | None) -> ManagedModel | None:
        """Which managed model stands for a served one."""
        return _first(self.managed, model)

    def carbon_of(self, region: str | None) -> Carbon | None:
        """What electricity emits there; where the region is unknown, that of any region."""
        return _first(self.carbon, region or "unknown")


def _first(entries: Sequence[_Entry], name: str | None) -> _Entry | None:
    if name is None:
        return None
    low = name.lower()
    for entry in entries:
        if any(fnmatchcase(low, pattern.lower()) for pattern in entry.match):
            return entry
    return None
