"""What a GPU did at one instant, as its driver or a sampler beside it said.

What a device cannot tell is None: a share of time in which memory was touched, say, never
stands in for its bandwidth.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tailspan_vllm import names


class GpuSource(StrEnum):
    """Who told of a GPU."""

    NVML = "nvml"
    DCGM = "dcgm"
    AMD_SMI = "amd_smi"
    SIMULATOR = "simulator"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU of one replica at one instant. Unknown is None.

    `gpu` is its UUID, or its index where it has none. `throttle_reasons` are sorted and
    joined by commas; "" says that nothing held the clock back. `energy_j_total` counts since
    the driver was loaded.
    """

    replica: str
    gpu: str
    at_unix_ns: int
    simulated: bool = False
    source: GpuSource | None = None
    model_name: str | None = None
    dram_bandwidth_ratio: float | None = None
    dram_bandwidth_bytes_per_s: float | None = None
    sm_active_ratio: float | None = None
    tensor_active_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    energy_j_total: float | None = None
    sm_clock_hz: int | None = None
    sm_clock_max_hz: int | None = None
    memory_clock_hz: int | None = None
    throttle_reasons: str | None = None
    foreign_processes: int | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    clock_ahead_s: float | None = None
    """As of a request: by how much its instants were set back."""


METRICS: Final[Mapping[str, str]] = {
    "dram_bandwidth_ratio": names.GPU_DRAM_UTILIZATION,
    "dram_bandwidth_bytes_per_s": names.GPU_DRAM_BANDWIDTH,
    "sm_active_ratio": names.GPU_SM_ACTIVITY,
    "tensor_active_ratio": names.GPU_TENSOR_ACTIVITY,
    "memory_used_bytes": names.GPU_MEMORY_USED,
    "memory_total_bytes": names.GPU_MEMORY_TOTAL,
    "power_w": names.GPU_POWER,
    "energy_j_total": names.GPU_ENERGY,
    "sm_clock_hz": names.GPU_SM_CLOCK,
    "sm_clock_max_hz": names.GPU_SM_CLOCK_MAX,
    "memory_clock_hz": names.GPU_MEMORY_CLOCK,
    "foreign_processes": names.GPU_FOREIGN_PROCESSES,
    "pcie_rx_bytes_per_s": names.GPU_PCIE_RECEIVED,
    "pcie_tx_bytes_per_s": names.GPU_PCIE_SENT,
    "nvlink_rx_bytes_per_s": names.GPU_NVLINK_RECEIVED,
    "nvlink_tx_bytes_per_s": names.GPU_NVLINK_SENT,
}
"""The wire's metric of each measurement. Reasons for throttling are text, and travel with
`names.GPU_THROTTLED`."""


THROTTLE_REASONS: Final = frozenset(
    {
        # NVIDIA's, as NVML names them
        "applications_clocks_setting",
        "sw_power_cap",
        "hw_slowdown",
        "sync_boost",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "display_clock_setting",
        "board_limit",
        "reliability",
        # AMD's, after the violations that AMD SMI tells of
        "prochot_thermal",
        "ppt_power",
        "socket_thermal",
        "vr_thermal",
        "hbm_thermal",
        "gfx_clock_below_host_limit",
    }
)
"""The reasons that are known. Who sends samples may name others, and they are kept."""


def throttle_reasons(reasons: set[str]) -> str:
    """Reasons as `GpuSample` keeps them."""
    return ",".join(sorted(reasons))
