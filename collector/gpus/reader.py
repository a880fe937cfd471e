"""The interface of a GPU reader, and its results: values and reasons for absent values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from telemetry.gpus import METRICS, GpuSource

MEASURED: Final = (*METRICS, "throttle_reasons")


class AbsenceReason(StrEnum):
    """Why a GPU or value is absent. Counters, messages and `tailspan doctor` show the reason."""

    NO_PACKAGE = "no_package"
    """The Python package for this vendor is not installed."""
    NO_LIBRARY = "no_library"
    """The driver's library is not on this machine."""
    NO_DRIVER = "no_driver"
    """The library exists, but the driver is not loaded."""
    NO_GPU = "no_gpu"
    """The driver finds no GPU."""
    NO_PERMISSION = "no_permission"
    """Tailspan's user, container or cgroup has no permission to read the value."""
    VERSION_MISMATCH = "version_mismatch"
    """The versions of library, driver and package are incompatible."""
    OLD_DRIVER = "old_driver"
    """The driver is too old. It lacks a required function."""
    NOT_SUPPORTED = "not_supported"
    """The device does not measure this value."""
    NOT_REPORTED = "not_reported"
    """The source does not report this value for any device."""
    LOST = "lost"
    """The GPU has fallen off the bus."""
    NEEDS_RESET = "needs_reset"
    NO_POWER = "no_power"
    """The GPU's power cables are not attached."""
    FIRST_LOOK = "first_look"
    """This is the first sample, or the first sample after a long pause. It has no rates."""
    SLICED = "sliced"
    """With MIG, some values are reported only for the card, and some only for its slices."""
    NO_DATA = "no_data"
    """The device supports this value, but returned none in this sample."""
    TIMEOUT = "timeout"
    IMPOSSIBLE = "impossible"
    """The device reported an impossible value, such as a ratio above 1."""
    UNREACHABLE = "unreachable"
    """The address does not resolve or respond."""
    SHUT = "shut"
    """The exporter requires a token or a certificate, or its certificate is not trusted."""
    NOT_UNDERSTOOD = "not_understood"
    """The response has no GPU metrics."""
    NOT_KEPT = "not_kept"
    FAILED = "failed"
    """Any other failure; `Absence` contains the details."""


ABSENT_HERE: Final = frozenset(
    {
        AbsenceReason.NO_PACKAGE,
        AbsenceReason.NO_LIBRARY,
        AbsenceReason.NO_DRIVER,
        AbsenceReason.NO_GPU,
    }
)
"""The machine has no usable GPU of this vendor. These reasons are not errors."""
LOST_GPU: Final = frozenset({AbsenceReason.LOST, AbsenceReason.NEEDS_RESET, AbsenceReason.NO_POWER})
"""The GPU is no longer usable. It may be found again after the library is reopened."""


@dataclass(frozen=True, slots=True)
class Absence:
    """The reason for an absent value, with details."""

    why: AbsenceReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.why} ({self.detail})" if self.detail else str(self.why)


class ReaderError(Exception):
    """The reader could not read any GPU."""

    def __init__(self, absence: Absence) -> None:
        super().__init__(str(absence))
        self.absence = absence


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One sample of a GPU or of a MIG slice.

    Attributes:
        gpu: the GPU's UUID, or a different unique name.
        index: the GPU's number in the driver's order.
        values: maps fields of `GpuSample` to values.
        absent: maps fields to the reasons why their values are absent.
        processes: ids of the processes that compute on the GPU, in this machine's namespace.
        labels: the labels that a dcgm-exporter reported.
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
class GpuReadFailure:
    """A GPU or an address that could not be read."""

    what: str
    absence: Absence


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one call of `read`."""

    gpus: tuple[GpuReading, ...] = ()
    failures: tuple[GpuReadFailure, ...] = ()


class GpuReader(Protocol):
    """Reads GPUs."""

    async def read(self) -> Reading:
        """Return the current values of all GPUs that can be read.

        Raises:
            ReaderError: the reader could not read any GPU.
        """


class Measurements:
    """Collects the values of one GPU and the reasons for absent values."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.absent: dict[str, Absence] = {}

    def set(self, name: str, value: Any) -> None:
        """Set a value."""
        self.values[name] = value
        self.absent.pop(name, None)

    def set_absent(self, name: str, absence: Absence) -> None:
        """Set the reason for an absent value, unless the field already has a value or a reason."""
        if name not in self.values:
            self.absent.setdefault(name, absence)

    def set_rest_absent(self, absence: Absence) -> None:
        """Set this reason for all fields that have neither a value nor a reason."""
        for name in MEASURED:
            # `owners` sets this field later.
            if name != "foreign_processes":
                self.set_absent(name, absence)
