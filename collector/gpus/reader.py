"""The protocol of a GPU reader, and its results: values, and reasons for absent values.

`owners` determines the replica of a GPU, not the reader.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from telemetry.gpus import METRICS, GpuSource

MEASURED: Final = (*METRICS, "throttle_reasons")
"""The fields of `GpuSample` that are measured."""


class Why(StrEnum):
    """Why a GPU, or one of its values, is absent.

    Used in counters, `tailspan doctor` and messages.
    """

    NO_PACKAGE = "no_package"
    """The Python package for this make of GPU is not installed."""
    NO_LIBRARY = "no_library"
    """The driver's library is not on this machine."""
    NO_DRIVER = "no_driver"
    """The library exists, but the driver is not loaded."""
    NO_GPU = "no_gpu"
    """The driver finds no GPU."""
    NO_PERMISSION = "no_permission"
    """This user has no permission, or a container or cgroup forbids it."""
    VERSION_MISMATCH = "version_mismatch"
    """Library, driver and package have incompatible versions."""
    OLD_DRIVER = "old_driver"
    """The driver is older than the required function."""
    NOT_SUPPORTED = "not_supported"
    """The device does not measure this."""
    NOT_REPORTED = "not_reported"
    """The source does not report this for any device."""
    LOST = "lost"
    """The GPU has fallen off the bus."""
    NEEDS_RESET = "needs_reset"
    """The GPU must be reset before it works again."""
    NO_POWER = "no_power"
    """Its power cables are not attached."""
    FIRST_LOOK = "first_look"
    """There is no rate yet, because this is the first reading, or the first after a long pause."""
    SLICED = "sliced"
    """With MIG, some values are reported only for the card, others only for its slices."""
    NO_DATA = "no_data"
    """No value at the moment."""
    TIMEOUT = "timeout"
    """No answer in time."""
    IMPOSSIBLE = "impossible"
    """The device reported an impossible value, such as a ratio above 1."""
    UNREACHABLE = "unreachable"
    """The address does not resolve, or does not answer."""
    SHUT = "shut"
    """The exporter requires a token or a certificate, or its certificate is not trusted."""
    NOT_UNDERSTOOD = "not_understood"
    """The answer has no GPU metrics."""
    NOT_KEPT = "not_kept"
    """The samples could not be stored."""
    FAILED = "failed"
    """Any other failure; see the detail."""


ABSENT_HERE: Final = frozenset({Why.NO_PACKAGE, Why.NO_LIBRARY, Why.NO_DRIVER, Why.NO_GPU})
"""These reasons mean that the machine has no GPU of this make, which is not an error."""
GONE: Final = frozenset({Why.LOST, Why.NEEDS_RESET, Why.NO_POWER})
"""These reasons mean that a GPU is not usable any more; reopening the library may find it again."""


@dataclass(frozen=True, slots=True)
class Absence:
    """The reason for an absent value, and a detail."""

    why: Why
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.why} ({self.detail})" if self.detail else str(self.why)


class ReaderError(Exception):
    """The reading failed as a whole."""

    def __init__(self, absence: Absence) -> None:
        super().__init__(str(absence))
        self.absence = absence


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One GPU, or one MIG slice, at an instant.

    Attributes:
        gpu: its UUID, or another name.
        index: its number in the driver's order; None for a slice, or if there is no order.
        values: the values that were read, by field of `GpuSample`.
        absent: the reasons for absent values, by field of `GpuSample`.
        processes: ids of the processes that compute on it, in this machine's namespace; None if
            unknown.
        labels: labels of a dcgm-exporter: Hostname, pod, namespace, container …
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
    """A GPU or an address that could not be read this time."""

    what: str
    absence: Absence


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one reading."""

    gpus: tuple[GpuReading, ...] = ()
    failures: tuple[Failure, ...] = ()


class Reader(Protocol):
    """Reads GPUs."""

    async def read(self) -> Reading:
        """Return the current values. One GPU's failure does not affect the others.

        Raises:
            ReaderError: no GPU could be read.
        """


class Measurements:
    """Collects the values of one GPU, and the reasons for absent values."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.absent: dict[str, Absence] = {}

    def set(self, name: str, value: Any) -> None:
        """Set a value."""
        self.values[name] = value
        self.absent.pop(name, None)

    def set_absent(self, name: str, absence: Absence) -> None:
        """Set the reason for an absent value, unless there is a value or a reason."""
        if name not in self.values:
            self.absent.setdefault(name, absence)

    def set_rest_absent(self, absence: Absence) -> None:
        """Set the reason for all fields that have neither a value nor a reason."""
        for name in MEASURED:
            # `owners` determines which processes are foreign.
            if name != "foreign_processes":
                self.set_absent(name, absence)
