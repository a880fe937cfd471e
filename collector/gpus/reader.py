"""What a reader tells of GPUs, and what it cannot tell and why.

A reader has one method. Whose a GPU is it does not know: `owners` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from telemetry.gpus import METRICS, GpuSource

MEASURED: Final = (*METRICS, "throttle_reasons")
"""The fields of `GpuSample` that are measured."""


class Why(StrEnum):
    """Why a GPU, or something about it, is not told: each reason spelled once, as counters,
    `tailspan doctor` and people hear it."""

    NO_PACKAGE = "no_package"
    """The Python package for this make of GPU is not installed."""
    NO_LIBRARY = "no_library"
    """The driver's library is not on this machine."""
    NO_DRIVER = "no_driver"
    """The library is there, the driver is not loaded."""
    NO_GPU = "no_gpu"
    """The driver knows of none."""
    NO_PERMISSION = "no_permission"
    """This user may not, or a container or cgroup forbids it."""
    VERSION_MISMATCH = "version_mismatch"
    """Library, driver and package are of versions that do not fit together."""
    OLD_DRIVER = "old_driver"
    """The driver is older than the function that would tell."""
    NOT_SUPPORTED = "not_supported"
    """The device has no such measurement."""
    NOT_TOLD = "not_told"
    """Whom we ask has no such measurement, whatever the device."""
    LOST = "lost"
    """The GPU has fallen off the bus."""
    NEEDS_RESET = "needs_reset"
    """The GPU must be reset before it works again."""
    NO_POWER = "no_power"
    """Its power cables are not attached."""
    FIRST_LOOK = "first_look"
    """A rate takes two looks, and this was the first, or came too late after the one before."""
    SLICED = "sliced"
    """With MIG it is known of the card or of its slices, and this is the other."""
    NO_DATA = "no_data"
    """It has none just now."""
    TIMEOUT = "timeout"
    """No answer in time."""
    IMPOSSIBLE = "impossible"
    """The device told what cannot be, such as more than all of it."""
    UNREACHABLE = "unreachable"
    """No such address, or nobody there."""
    SHUT = "shut"
    """It wants a token or a certificate, or has one that is not trusted."""
    NOT_UNDERSTOOD = "not_understood"
    """An answer, and not one that tells of GPUs."""
    NOT_KEPT = "not_kept"
    """It told, and what it told could not be kept."""
    FAILED = "failed"
    """Something else; the detail says what."""


ABSENT_HERE: Final = frozenset({Why.NO_PACKAGE, Why.NO_LIBRARY, Why.NO_DRIVER, Why.NO_GPU})
"""There is no GPU of this make here, as on most machines: nothing to complain of."""
GONE: Final = frozenset({Why.LOST, Why.NEEDS_RESET, Why.NO_POWER})
"""A GPU that was there is not usable: whoever looks again from the start may find it back."""


@dataclass(frozen=True, slots=True)
class Absence:
    """Something that is not told: why, and what was said of it."""

    why: Why
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.why} ({self.detail})" if self.detail else str(self.why)


class ReaderError(Exception):
    """Nothing could be read at all."""

    def __init__(self, absence: Absence) -> None:
        super().__init__(str(absence))
        self.absence = absence


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One GPU, or one MIG slice of one, at one instant.

    Attributes:
        gpu: its UUID, or what else names it.
        index: its number in its driver's order; None of a slice, and where nobody counts.
        values: what is known, by the field of `GpuSample`.
        absent: what is not, by the same names, and why.
        processes: ids of the processes that compute on it, as this machine numbers them; None
            where nobody can say.
        labels: what a dcgm-exporter says of it: Hostname, pod, namespace, container …
    """

    gpu: str
    at_unix_ns: int
    source: GpuSource
    index: int | None = None
    model_name: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    absent: Mapping[str, Absence] = field(default_factory=dict)
    processes: frozenset[int] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """A GPU or an address that told nothing this time."""

    what: str
    absence: Absence


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look told."""

    gpus: tuple[Told, ...] = ()
    failures: tuple[Failure, ...] = ()


class Reader(Protocol):
    """Reads GPUs, now."""

    async def read(self) -> Reading:
        """What they do at this moment. What one does wrong costs that one.

        Raises:
            ReaderError: none of them could be read.
        """


class Measurements:
    """What is known of one GPU and what is not, in the making."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.absent: dict[str, Absence] = {}

    def tell(self, name: str, value: Any) -> None:
        """A measurement."""
        self.values[name] = value
        self.absent.pop(name, None)

    def miss(self, name: str, absence: Absence) -> None:
        """A measurement that there is none of; the first reason stands."""
        if name not in self.values:
            self.absent.setdefault(name, absence)

    def miss_the_rest(self, absence: Absence) -> None:
        """All that was neither told nor missed."""
        for name in MEASURED:
            # Whose processes are foreign is for `owners` to say.
            if name != "foreign_processes":
                self.miss(name, absence)
