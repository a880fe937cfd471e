"""The state of a GPU at one instant. A value that the GPU does not report is None."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from tailspan_vllm import names

from telemetry.fields import CLOCK_AHEAD, GPU_SAMPLER, column, metric, on_the_wire


class GpuSource(StrEnum):
    """The source of a GPU sample."""

    NVML = "nvml"
    DCGM = "dcgm"
    AMD_SMI = "amd_smi"
    SIMULATOR = "simulator"


# The class has no slots, so that `sample_layouts` can set all fields in one operation.
@dataclass(frozen=True, kw_only=True)
class GpuSample:
    """The state of one GPU of one replica at one instant.

    `throttle_reasons` are sorted and joined by commas. The text is empty if nothing limits the
    clock.
    """

    replica: Annotated[str, column("text", "The replica.", "resource `service.instance.id`")]
    gpu: Annotated[
        str,
        column(
            "text",
            "UUID of the GPU, or its index if the GPU has no UUID.",
            "the metrics' attributes",
        ),
    ]
    at_unix_ns: Annotated[int, column("ns", "Time of the sample.", "the point's time")]
    simulated: Annotated[
        bool, column("boolean", "Whether the sample is simulated.", "resource `tailspan.simulated`")
    ] = False
    source: Annotated[
        GpuSource | None,
        column(
            "text",
            "Source of the sample: `nvml`, `dcgm`, `amd_smi` or `simulator`.",
            "the metrics' attributes",
        ),
    ] = None
    model_name: Annotated[
        str | None, column("text", "The device's name.", "the metrics' attributes")
    ] = None
    dram_bandwidth_ratio: Annotated[
        float | None,
        metric(
            names.GPU_DRAM_UTILIZATION,
            "Memory bandwidth in use, as a share of the peak. This is not the share of time in"
            " which memory was accessed.",
            GPU_SAMPLER,
        ),
    ] = None
    dram_bandwidth_bytes_per_s: Annotated[
        float | None, metric(names.GPU_DRAM_BANDWIDTH, "Memory bandwidth in use.", GPU_SAMPLER)
    ] = None
    sm_active_ratio: Annotated[
        float | None,
        metric(
            names.GPU_SM_ACTIVITY,
            "Share of time in which multiprocessors were active.",
            GPU_SAMPLER,
        ),
    ] = None
    tensor_active_ratio: Annotated[
        float | None,
        metric(
            names.GPU_TENSOR_ACTIVITY,
            "Share of time in which tensor cores were active.",
            GPU_SAMPLER,
        ),
    ] = None
    memory_used_bytes: Annotated[
        int | None, metric(names.GPU_MEMORY_USED, "Memory in use by all processes.", GPU_SAMPLER)
    ] = None
    memory_total_bytes: Annotated[
        int | None, metric(names.GPU_MEMORY_TOTAL, "Memory installed.", GPU_SAMPLER)
    ] = None
    power_w: Annotated[float | None, metric(names.GPU_POWER, "Power draw.", GPU_SAMPLER)] = None
    energy_j_total: Annotated[
        float | None,
        metric(
            names.GPU_ENERGY,
            "Energy used since the driver was loaded.",
            GPU_SAMPLER,
            rolled_up=True,
        ),
    ] = None
    sm_clock_hz: Annotated[
        int | None, metric(names.GPU_SM_CLOCK, "Clock of the multiprocessors.", GPU_SAMPLER)
    ] = None
    sm_clock_max_hz: Annotated[
        int | None,
        metric(names.GPU_SM_CLOCK_MAX, "Maximum clock of the multiprocessors.", GPU_SAMPLER),
    ] = None
    memory_clock_hz: Annotated[
        int | None, metric(names.GPU_MEMORY_CLOCK, "Clock of the memory.", GPU_SAMPLER)
    ] = None
    throttle_reasons: Annotated[
        str | None,
        metric(
            names.GPU_THROTTLED,
            "Number of reasons that limit the clock; `tailspan.gpu.throttle_reasons` lists them.",
            GPU_SAMPLER,
            quantity="count",
        ),
    ] = None
    foreign_processes: Annotated[
        int | None,
        metric(
            names.GPU_FOREIGN_PROCESSES,
            "Number of processes that use the GPU and do not belong to the replica.",
            GPU_SAMPLER,
        ),
    ] = None
    pcie_rx_bytes_per_s: Annotated[
        float | None, metric(names.GPU_PCIE_RECEIVED, "Bytes received over PCIe.", GPU_SAMPLER)
    ] = None
    pcie_tx_bytes_per_s: Annotated[
        float | None, metric(names.GPU_PCIE_SENT, "Bytes sent over PCIe.", GPU_SAMPLER)
    ] = None
    nvlink_rx_bytes_per_s: Annotated[
        float | None,
        metric(names.GPU_NVLINK_RECEIVED, "Bytes received over all NVLink links.", GPU_SAMPLER),
    ] = None
    nvlink_tx_bytes_per_s: Annotated[
        float | None,
        metric(names.GPU_NVLINK_SENT, "Bytes sent over all NVLink links.", GPU_SAMPLER),
    ] = None
    clock_ahead_s: Annotated[float | None, CLOCK_AHEAD] = None


METRICS: Final[Mapping[str, str]] = {
    field.name: wire for wire, field in on_the_wire(GpuSample).items() if field.type is not str
}
"""The OpenTelemetry metric of each measured field. Throttle reasons are an attribute of
`names.GPU_THROTTLED`."""


THROTTLE_REASONS: Final = frozenset(
    {
        # NVIDIA, under NVML's names
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
        # AMD, named after the violations that AMD SMI reports
        "prochot_thermal",
        "ppt_power",
        "socket_thermal",
        "vr_thermal",
        "hbm_thermal",
        "gfx_clock_below_host_limit",
    }
)
"""The known reasons. Unknown reasons are stored as the GPU reports them."""


def throttle_reasons(reasons: set[str]) -> str:
    """The reasons in the format of `GpuSample.throttle_reasons`."""
    return ",".join(sorted(reasons))
