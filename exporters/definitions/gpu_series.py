"""The series of GPUs: each is a field of `GpuSample`, under another name."""

from collections.abc import Mapping
from typing import Final

from exporters.definitions.series_types import Series

GPU_LABELS: Final = ("replica", "gpu", "model_name")


def _series(name: str, help_: str) -> Series:
    return Series(f"tailspan_gpu_{name}", help_, GPU_LABELS)


GPU_GAUGES: Final[Mapping[str, Series]] = {
    "dram_bandwidth_ratio": _series(
        "dram_bandwidth_ratio",
        "Memory bandwidth in use, 0 to 1 of the peak; not the share of time memory was touched.",
    ),
    "dram_bandwidth_bytes_per_s": _series(
        "dram_bandwidth_bytes_per_second", "Memory bandwidth in use, in bytes a second."
    ),
    "sm_active_ratio": _series(
        "sm_active_ratio", "Share of time that multiprocessors were at work, 0 to 1."
    ),
    "tensor_active_ratio": _series(
        "tensor_active_ratio", "Share of time that tensor cores were at work, 0 to 1."
    ),
    "memory_used_bytes": _series("memory_used_bytes", "Memory in use, whosever it is, in bytes."),
    "memory_total_bytes": _series("memory_size_bytes", "Memory there is, in bytes."),
    "power_w": _series("power_watts", "Power drawn, in watts."),
    "sm_clock_hz": _series("sm_clock_hertz", "Clock of the multiprocessors, in hertz."),
    "sm_clock_max_hz": _series("sm_clock_max_hertz", "The highest that clock may be, in hertz."),
    "memory_clock_hz": _series("memory_clock_hertz", "Clock of the memory, in hertz."),
    "foreign_processes": _series(
        "foreign_processes", "Processes at work on it that are not the replica's."
    ),
    "pcie_rx_bytes_per_s": _series(
        "pcie_received_bytes_per_second", "Received over PCIe, in bytes a second."
    ),
    "pcie_tx_bytes_per_s": _series(
        "pcie_sent_bytes_per_second", "Sent over PCIe, in bytes a second."
    ),
    "nvlink_rx_bytes_per_s": _series(
        "nvlink_received_bytes_per_second", "Received over NVLink, in bytes a second."
    ),
    "nvlink_tx_bytes_per_s": _series(
        "nvlink_sent_bytes_per_second", "Sent over NVLink, in bytes a second."
    ),
}
ENERGY: Final = _series(
    "energy_joules_total", "Energy used since its driver was loaded, in joules."
)
THROTTLED: Final = _series(
    "throttle_reasons", "How many reasons hold its clock back; 0 says that none does."
)
THROTTLE_REASON: Final = Series(
    "tailspan_gpu_throttle_reason",
    "1 for each reason that holds its clock back just now.",
    (*GPU_LABELS, "reason"),
)
LAST_SAMPLE: Final = _series(
    "last_sample_timestamp_seconds", "Instant of the latest sample, in unix seconds."
)

GPU_SERIES: Final = (*GPU_GAUGES.values(), ENERGY, THROTTLED, THROTTLE_REASON, LAST_SAMPLE)
