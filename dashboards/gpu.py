"""GPU dashboard: memory bandwidth, cores, power and clocks of the devices."""

from typing import Final

from dashboards.panels import (
    BAD,
    GOOD,
    WARNING,
    Board,
    ColourThreshold,
    GrafanaUnit,
    Panel,
    PanelKind,
    PanelQuery,
    Row,
)
from dashboards.promql import GPUS, SERVERS, of, rate, share
from exporters.definitions.engine_series import ENGINE_TOTALS, ROOFLINES
from exporters.definitions.gpu_series import ENERGY, GPU_GAUGES, THROTTLE_REASON, THROTTLED

_LEGEND: Final = "{{replica}} {{gpu}}"


def _gauge(field: str) -> str:
    return f"max by (replica, gpu) ({of(GPU_GAUGES[field], GPUS)})"


def _each(field: str) -> tuple[PanelQuery, ...]:
    return (PanelQuery(_gauge(field), _LEGEND),)


def _mean(field: str) -> tuple[PanelQuery, ...]:
    return (PanelQuery(f"avg({of(GPU_GAUGES[field], GPUS)})", "mean"),)


BOARD: Final = Board(
    uid="tailspan-gpu",
    title="Tailspan / GPU",
    description="The state of the GPUs: measured memory bandwidth, cores, power, clocks.",
    variables=("model", "region", "replica"),
    rows=(
        Row(
            title="All GPUs, now",
            panels=(
                Panel(
                    title="Memory bandwidth in use",
                    description=(
                        "Measured share of the peak, mean over GPUs. Near 1, decoding becomes"
                        " faster only with faster memory or more GPUs."
                    ),
                    unit=GrafanaUnit.SHARE,
                    kind=PanelKind.NUMBER,
                    width=6,
                    latency="tpot",
                    queries=_mean("dram_bandwidth_ratio"),
                ),
                Panel(
                    title="Multiprocessors, all",
                    description=(
                        "The share of time in which cores were active, mean over GPUs. If it is "
                        "low while steps are long and bandwidth is high, the GPU is "
                        "memory-bound, not idle."
                    ),
                    unit=GrafanaUnit.SHARE,
                    kind=PanelKind.NUMBER,
                    width=6,
                    queries=_mean("sm_active_ratio"),
                ),
                Panel(
                    title="Power, all",
                    description="Power drawn by all GPUs.",
                    unit=GrafanaUnit.WATTS,
                    kind=PanelKind.NUMBER,
                    width=6,
                    page="cost",
                    queries=(PanelQuery(f"sum({of(GPU_GAUGES['power_w'], GPUS)})", "all"),),
                ),
                Panel(
                    title="Throttled GPUs",
                    description=(
                        "Number of GPUs that are throttled now, because of heat, power or a limit."
                    ),
                    unit=GrafanaUnit.NUMBER,
                    kind=PanelKind.NUMBER,
                    width=6,
                    page="root-cause",
                    queries=(PanelQuery(f"sum({of(THROTTLED, GPUS)} > bool 0)", "GPUs"),),
                    thresholds=(ColourThreshold(0, GOOD), ColourThreshold(1, WARNING)),
                ),
            ),
        ),
        Row(
            title="Memory bandwidth",
            panels=(
                Panel(
                    title="Share of the peak",
                    description=(
                        "Measured DRAM traffic, as a share of the peak that the GPU's memory"
                        " clock and bus allow. This is not the share of time with memory accesses."
                    ),
                    unit=GrafanaUnit.SHARE,
                    most=1,
                    latency="tpot",
                    queries=_each("dram_bandwidth_ratio"),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(0.8, WARNING),
                        ColourThreshold(0.95, BAD),
                    ),
                ),
                Panel(
                    title="Bytes per second",
                    description=(
                        "DRAM traffic in bytes per second. Each step reads the weights and the KV"
                        " cache again."
                    ),
                    unit=GrafanaUnit.BYTES_PER_S,
                    latency="tpot",
                    queries=_each("dram_bandwidth_bytes_per_s"),
                ),
            ),
        ),
        Row(
            title="Measured and modelled",
            panels=(
                Panel(
                    title="Bytes per second of each GPU",
                    description=(
                        "Measured traffic, and the modelled maximum for weights, KV cache and "
                        "activations. If the measured traffic is far above this maximum, another"
                        " process uses the GPU, or the reported model shape is wrong."
                    ),
                    unit=GrafanaUnit.BYTES_PER_S,
                    page="root-cause",
                    latency="tpot",
                    queries=(
                        PanelQuery(
                            "avg by (replica)"
                            f" ({of(GPU_GAUGES['dram_bandwidth_bytes_per_s'], GPUS)})",
                            "{{replica}} measured",
                        ),
                        PanelQuery(
                            f"avg by (replica) ({of(ROOFLINES['modelled_bytes_per_s'], SERVERS)})",
                            "{{replica}} modelled",
                        ),
                    ),
                ),
                Panel(
                    title="Share of the peaks, while steps ran",
                    description=(
                        "The share of peak memory bandwidth (MBU) and of peak FLOP/s (MFU) that"
                        " steps needed. The higher of the two shows what limits the engine. If"
                        " both are low, the limit is CPU time, kernel launches or communication."
                    ),
                    unit=GrafanaUnit.SHARE,
                    page="root-cause",
                    latency="tpot",
                    queries=(
                        PanelQuery(
                            f"avg by (replica) ({of(ROOFLINES['mbu'], SERVERS)})",
                            "{{replica}} MBU",
                        ),
                        PanelQuery(
                            f"avg by (replica) ({of(ROOFLINES['mfu'], SERVERS)})",
                            "{{replica}} MFU",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            title="Cores",
            panels=(
                Panel(
                    title="Multiprocessors active",
                    description=(
                        "The share of time in which cores were active. If it is high while "
                        "bandwidth is low, the GPU is compute-bound, as in long prefills."
                    ),
                    unit=GrafanaUnit.SHARE,
                    most=1,
                    queries=_each("sm_active_ratio"),
                ),
                Panel(
                    title="Tensor cores active",
                    description=(
                        "The share of time in which the tensor cores were active. Prefills have"
                        " the highest share."
                    ),
                    unit=GrafanaUnit.SHARE,
                    most=1,
                    queries=_each("tensor_active_ratio"),
                ),
            ),
        ),
        Row(
            title="Power and clocks",
            panels=(
                Panel(
                    title="Power",
                    description="Power drawn by each GPU.",
                    unit=GrafanaUnit.WATTS,
                    width=8,
                    page="cost",
                    queries=_each("power_w"),
                ),
                Panel(
                    title="Energy per output token",
                    description=(
                        "Energy of a replica's GPUs divided by its output tokens. The energy"
                        " includes the work for prompts."
                    ),
                    unit=GrafanaUnit.JOULES,
                    width=8,
                    page="cost",
                    queries=(
                        PanelQuery(
                            share(
                                rate(ENERGY, GPUS, by="replica"),
                                rate(ENGINE_TOTALS["decode_tokens_total"], SERVERS, by="replica"),
                            ),
                            "{{replica}}",
                        ),
                    ),
                ),
                Panel(
                    title="Clock, share of the highest",
                    description=(
                        "Clock of the multiprocessors. If the clock falls under load, every step"
                        " is slower."
                    ),
                    unit=GrafanaUnit.SHARE,
                    most=1,
                    width=8,
                    page="root-cause",
                    queries=(
                        PanelQuery(
                            share(_gauge("sm_clock_hz"), _gauge("sm_clock_max_hz")), _LEGEND
                        ),
                    ),
                ),
                Panel(
                    title="Clocks",
                    description="Clocks of the multiprocessors and of the memory.",
                    unit=GrafanaUnit.HERTZ,
                    queries=(
                        PanelQuery(_gauge("sm_clock_hz"), f"{_LEGEND} cores"),
                        PanelQuery(_gauge("memory_clock_hz"), f"{_LEGEND} memory"),
                    ),
                ),
                Panel(
                    title="Throttled, by reason",
                    description=(
                        "Number of GPUs that are throttled, by reason: heat, power, a limit."
                    ),
                    unit=GrafanaUnit.NUMBER,
                    page="root-cause",
                    queries=(
                        PanelQuery(
                            f"sum by (reason) ({of(THROTTLE_REASON, GPUS)}) or"
                            f' label_replace(0 * sum({of(THROTTLED, GPUS)}), "reason", "none",'
                            ' "", "")',
                            "{{reason}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            title="Memory",
            panels=(
                Panel(
                    title="Memory in use",
                    description=(
                        "The share of memory in use by all processes. A flat line is normal: "
                        "vLLM allocates at its start."
                    ),
                    unit=GrafanaUnit.SHARE,
                    most=1,
                    queries=(
                        PanelQuery(
                            share(_gauge("memory_used_bytes"), _gauge("memory_total_bytes")),
                            _LEGEND,
                        ),
                    ),
                ),
                Panel(
                    title="Other processes",
                    description=(
                        "Other processes on the replica's GPUs take bandwidth and memory from the"
                        " replica."
                    ),
                    unit=GrafanaUnit.NUMBER,
                    page="root-cause",
                    queries=_each("foreign_processes"),
                    thresholds=(ColourThreshold(0, GOOD), ColourThreshold(1, WARNING)),
                ),
            ),
        ),
    ),
)
