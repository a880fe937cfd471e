"""The series of GPUs. Each exports a field of `GpuSample`."""

from collections.abc import Mapping
from typing import Final

from exporters.definitions.series_types import MetricSeries

GPU_LABELS: Final = ("replica", "gpu", "model_name")


def _series(name: str, help_: str) -> MetricSeries:
    return MetricSeries(f"tailspan_gpu_{name}", help_, GPU_LABELS)


GPU_GAUGES: Final[Mapping[str, MetricSeries]] = {
    "dram_bandwidth_ratio": _series(
        "dram_bandwidth_ratio",
        "Memory bandwidth in use, 0 to 1 of the peak. This is not the share of time with memory"
        " access.",
    ),
    "dram_bandwidth_bytes_per_s": _series(
        "dram_bandwidth_bytes_per_second", "Memory bandwidth in use, in bytes per second."
    ),
    "sm_active_ratio": _series(
        "sm_active_ratio", "Share of time in which multiprocessors were active, 0 to 1."
    ),
    "tensor_active_ratio": _series(
        "tensor_active_ratio", "Share of time in which tensor cores were active, 0 to 1."
    ),
    "memory_used_bytes": _series("memory_used_bytes", "Memory in use by all processes, in bytes."),
    "memory_total_bytes": _series("memory_size_bytes", "Memory installed, in bytes."),
    "power_w": _series("power_watts", "Power draw, in watts."),
    "sm_clock_hz": _series("sm_clock_hertz", "Clock of the multiprocessors, in hertz."),
    "sm_clock_max_hz": _series(
        "sm_clock_max_hertz", "Maximum clock of the multiprocessors, in hertz."
    ),
    "memory_clock_hz": _series("memory_clock_hertz", "Clock of the memory, in hertz."),
    "foreign_processes": _series(
        "foreign_processes", "Processes that use the GPU and do not belong to the replica."
    ),
    "pcie_rx_bytes_per_s": _series(
        "pcie_received_bytes_per_second", "Bytes received over PCIe per second."
    ),
    "pcie_tx_bytes_per_s": _series(
        "pcie_sent_bytes_per_second", "Bytes sent over PCIe per second."
    ),
    "nvlink_rx_bytes_per_s": _series(
        "nvlink_received_bytes_per_second", "Bytes received over NVLink per second."
    ),
    "nvlink_tx_bytes_per_s": _series(
        "nvlink_sent_bytes_per_second", "Bytes sent over NVLink per second."
    ),
}
ENERGY: Final = _series(
    "energy_joules_total", "Energy used since the GPU's driver was loaded, in joules."
)
THROTTLED: Final = _series(
    "throttle_reasons", "Number of reasons that limit the GPU's clock; 0 without a limit."
)
THROTTLE_REASON: Final = MetricSeries(
    "tailspan_gpu_throttle_reason",
    "1 for each reason that currently limits the GPU's clock.",
    (*GPU_LABELS, "reason"),
)
LAST_SAMPLE: Final = _series(
    "last_sample_timestamp_seconds", "Timestamp of the GPU's latest sample, in unix seconds."
)

GPU_SERIES: Final = (*GPU_GAUGES.values(), ENERGY, THROTTLED, THROTTLE_REASON, LAST_SAMPLE)
