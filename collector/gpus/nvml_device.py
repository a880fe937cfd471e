"""NVML's current values of one NVIDIA GPU, without its performance counters.

`utilization.memory` is not read, because it is a share of time and not of bandwidth. Source: NVML
API reference, "Device Queries".
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from collector.gpus.nvml_errors import absence_of
from collector.gpus.reader import LOST_GPU, Absence, AbsenceReason, Measurements, ReaderError
from collector.gpus.throttle_reasons import reasons_of

_MHZ: Final = 1_000_000
_TRANSFERS_A_CLOCK: Final = 2
"""Bits that HBM and GDDR transfer on each data line in one cycle of NVML's memory clock. For an
H100 (SXM), 2 × 2,619 MHz × 5,120 lines are 3.35 TB/s, as NVIDIA specifies. The factor is also
correct for A100, H200, L4 and L40S."""


class _Query(NamedTuple):
    field: str
    read: Callable[[Any, Any], Any]


def _clock(kind: str, function: str) -> Callable[[Any, Any], int]:
    return lambda nvml, device: int(getattr(nvml, function)(device, getattr(nvml, kind))) * _MHZ


def _reasons(nvml: Any, device: Any) -> str:
    try:
        return reasons_of(nvml.nvmlDeviceGetCurrentClocksEventReasons(device))
    except nvml.NVMLError_FunctionNotFound:  # its name before driver 535
        return reasons_of(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))


OF_CARD: Final = (
    _Query("power_w", lambda nvml, device: nvml.nvmlDeviceGetPowerUsage(device) / 1e3),
    _Query(
        "energy_j_total",
        lambda nvml, device: nvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3,
    ),
)
OF_CLOCKS: Final = (
    _Query("sm_clock_hz", _clock("NVML_CLOCK_SM", "nvmlDeviceGetClockInfo")),
    _Query("sm_clock_max_hz", _clock("NVML_CLOCK_SM", "nvmlDeviceGetMaxClockInfo")),
    _Query("memory_clock_hz", _clock("NVML_CLOCK_MEM", "nvmlDeviceGetClockInfo")),
    _Query("throttle_reasons", _reasons),
)
OF_MEMORY: Final = (
    _Query("memory_used_bytes", lambda _nvml, memory: int(memory.used)),
    _Query("memory_total_bytes", lambda _nvml, memory: int(memory.total)),
)


def read_card(nvml: Any, device: Any, into: Measurements) -> None:
    """Read the power and energy of a card into `into`.

    Raises:
        ReaderError: the GPU is gone.
    """
    _read(nvml, device, OF_CARD, into)


def read_clocks(nvml: Any, device: Any, into: Measurements) -> None:
    """Read the clocks and throttle reasons of a card into `into`. The values also apply to the
    card's slices."""
    _read(nvml, device, OF_CLOCKS, into)


def read_memory(nvml: Any, device: Any, into: Measurements) -> None:
    """Read the used and total memory of a card or a slice into `into`."""
    memory = result_of(nvml, lambda: _memory(nvml, device))
    for query in OF_MEMORY:
        if isinstance(memory, Absence):
            into.set_absent(query.field, memory)
        else:
            into.set(query.field, query.read(nvml, memory))


def _memory(nvml: Any, device: Any) -> Any:
    """Read the memory. As in nvidia-smi and DCGM, used memory excludes the part that the driver
    reserves (480 MiB on an H100)."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2)
    except nvml.NVMLError_FunctionNotFound:  # before driver 510
        return nvml.nvmlDeviceGetMemoryInfo(device)


def peak_bytes_per_s(nvml: Any, device: Any) -> float | Absence:
    """The peak memory bandwidth, computed from bus width and highest clock."""
    found: list[float] = []
    for each in (
        result_of(nvml, lambda: nvml.nvmlDeviceGetMemoryBusWidth(device)),
        result_of(nvml, lambda: nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_MEM)),
    ):
        if isinstance(each, Absence):
            return each
        if not each:
            return Absence(AbsenceReason.NOT_SUPPORTED, "NVML reports no memory width or clock")
        found.append(float(each))
    bits, megahertz = found
    return bits / 8 * megahertz * _MHZ * _TRANSFERS_A_CLOCK


def processes_of(nvml: Any, device: Any) -> frozenset[int] | None:
    """The ids of the processes that compute on a GPU, or None if they are unknown."""
    found = result_of(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(device))
    return None if isinstance(found, Absence) else frozenset(int(each.pid) for each in found)


def result_of(nvml: Any, call: Callable[[], Any]) -> Any:
    """The result of a library call, or the reason for its absence.

    Raises:
        ReaderError: the GPU is gone.
    """
    try:
        return call()
    except (nvml.NVMLError, nvml.NVMLLibraryMismatchError) as error:
        absence = absence_of(nvml, error)
        if absence.why in LOST_GPU:
            raise ReaderError(absence) from error
        return absence


def _read(nvml: Any, device: Any, queries: tuple[_Query, ...], into: Measurements) -> None:
    for query in queries:
        value = result_of(nvml, lambda query=query: query.read(nvml, device))  # type: ignore[misc]
        if isinstance(value, Absence):
            into.set_absent(query.field, value)
        else:
            into.set(query.field, value)
