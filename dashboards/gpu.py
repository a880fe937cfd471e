"""GPU: what the devices were doing: memory bandwidth, cores, power, clocks."""

from typing import Final

from dashboards.panels import (
    BAD,
    DOUBTFUL,
    GOOD,
    Board,
    Kind,
    Panel,
    Query,
    Row,
    Threshold,
    Unit,
)
from dashboards.promql import GPUS, SERVERS, of, rate, share
from exporters.definitions.engine_series import ENGINE_TOTALS, ROOFLINES
from exporters.definitions.gpu_series import ENERGY, GPU_GAUGES, THROTTLE_REASON, THROTTLED

_LEGEND: Final = "{{replica}} {{gpu}}"


def _gauge(field: str) -> str:
    return f"max by (replica, gpu) ({of(GPU_GAUGES[field], GPUS)})"


def _each(field: str) -> tuple[Query, ...]:
    return (Query(_gauge(field), _LEGEND),)


def _mean(field: str) -> tuple[Query, ...]:
    return (Query(f"avg({of(GPU_GAUGES[field], GPUS)})", "mean"),)


BOARD: Final = Board(
    uid="tailspan-gpu",
    title="Tailspan / GPU",
    description="What the GPUs were doing: memory bandwidth as measured, cores, power, clocks.",
    variables=("model", "region", "replica"),
    rows=(
        Row(
            title="All of them, now",
            panels=(
                Panel(
                    title="Memory bandwidth in use",
                    description="Of the peak, measured; the mean over GPUs. Decoding is bound by"
                    " it: near 1 only more or faster memory helps.",
                    unit=Unit.SHARE,
                    kind=Kind.NUMBER,
                    width=6,
                    latency="tpot",
                    queries=_mean("dram_bandwidth_ratio"),
                ),
                Panel(
                    title="Multiprocessors, all",
                    description="The share of time, the mean over GPUs. Low with long steps and"
                    " high bandwidth: bound by memory, not idle.",
                    unit=Unit.SHARE,
                    kind=Kind.NUMBER,
                    width=6,
                    queries=_mean("sm_active_ratio"),
                ),
                Panel(
                    title="Power, all",
                    description="Of all GPUs together.",
                    unit=Unit.WATTS,
                    kind=Kind.NUMBER,
                    width=6,
                    page="cost",
                    queries=(Query(f"sum({of(GPU_GAUGES['power_w'], GPUS)})", "all"),),
                ),
                Panel(
                    title="Held back",
                    description="GPUs whose clock something holds back now: heat, power, a cap.",
                    unit=Unit.NUMBER,
                    kind=Kind.NUMBER,
                    width=6,
                    page="root-cause",
                    queries=(Query(f"sum({of(THROTTLED, GPUS)} > bool 0)", "GPUs"),),
                    thresholds=(Threshold(0, GOOD), Threshold(1, DOUBTFUL)),
                ),
            ),
        ),
        Row(
            title="Memory bandwidth",
            panels=(
                Panel(
                    title="Of the peak",
                    description="DRAM traffic as the device measures it, of what its clock and bus"
                    " allow. Not the share of time in which memory was touched.",
                    unit=Unit.SHARE,
                    most=1,
                    latency="tpot",
                    queries=_each("dram_bandwidth_ratio"),
                    thresholds=(Threshold(0, GOOD), Threshold(0.8, DOUBTFUL), Threshold(0.95, BAD)),
                ),
                Panel(
                    title="Bytes a second",
                    description="The same in bytes. Weights and KV cache are read anew each step.",
                    unit=Unit.BYTES_PER_S,
                    latency="tpot",
                    queries=_each("dram_bandwidth_bytes_per_s"),
                ),
            ),
        ),
        Row(
            title="Measured and modelled",
            panels=(
                Panel(
                    title="Bytes a second, of each GPU",
                    description="As the devices measure it, and as the model's shape has it at"
                    " most: weights, KV cache, activations. Measured far above modelled: somebody"
                    " else's traffic, or a shape that is not this model's.",
                    unit=Unit.BYTES_PER_S,
                    page="root-cause",
                    latency="tpot",
                    queries=(
                        Query(
                            "avg by (replica)"
                            f" ({of(GPU_GAUGES['dram_bandwidth_bytes_per_s'], GPUS)})",
                            "{{replica}} measured",
                        ),
                        Query(
                            f"avg by (replica) ({of(ROOFLINES['modelled_bytes_per_s'], SERVERS)})",
                            "{{replica}} modelled",
                        ),
                    ),
                ),
                Panel(
                    title="Of the peaks, while steps ran",
                    description="What steps needed of memory bandwidth (MBU) and of arithmetic"
                    " (MFU). The higher one is what bounds them; both low: CPU, launches or"
                    " communication do.",
                    unit=Unit.SHARE,
                    page="root-cause",
                    latency="tpot",
                    queries=(
                        Query(
                            f"avg by (replica) ({of(ROOFLINES['mbu'], SERVERS)})",
                            "{{replica}} MBU",
                        ),
                        Query(
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
                    title="Multiprocessors at work",
                    description="The share of time. High while bandwidth is low: bound by compute,"
                    " as in long prefills.",
                    unit=Unit.SHARE,
                    most=1,
                    queries=_each("sm_active_ratio"),
                ),
                Panel(
                    title="Tensor cores at work",
                    description="The share of time. What multiplies matrices: highest in prefills.",
                    unit=Unit.SHARE,
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
                    description="Drawn by each GPU.",
                    unit=Unit.WATTS,
                    width=8,
                    page="cost",
                    queries=_each("power_w"),
                ),
                Panel(
                    title="Energy of an output token",
                    description="Joules of a replica's GPUs over the tokens that it made, prompts"
                    " included in the energy.",
                    unit=Unit.JOULES,
                    width=8,
                    page="cost",
                    queries=(
                        Query(
                            share(
                                rate(ENERGY, GPUS, by="replica"),
                                rate(ENGINE_TOTALS["decode_tokens_total"], SERVERS, by="replica"),
                            ),
                            "{{replica}}",
                        ),
                    ),
                ),
                Panel(
                    title="Clock, of the highest",
                    description="Of the multiprocessors. A fall while there is work makes every"
                    " step slower.",
                    unit=Unit.SHARE,
                    most=1,
                    width=8,
                    page="root-cause",
                    queries=(
                        Query(share(_gauge("sm_clock_hz"), _gauge("sm_clock_max_hz")), _LEGEND),
                    ),
                ),
                Panel(
                    title="Clocks",
                    description="Of the multiprocessors, and of the memory.",
                    unit=Unit.HERTZ,
                    queries=(
                        Query(_gauge("sm_clock_hz"), f"{_LEGEND} cores"),
                        Query(_gauge("memory_clock_hz"), f"{_LEGEND} memory"),
                    ),
                ),
                Panel(
                    title="Held back, by what",
                    description="GPUs whose clock a reason holds back: heat, power, a cap; none is"
                    " a line at 0.",
                    unit=Unit.NUMBER,
                    page="root-cause",
                    queries=(
                        Query(
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
                    description="Of what there is, whosever it is. vLLM takes its share at the"
                    " start: flat is as it should be.",
                    unit=Unit.SHARE,
                    most=1,
                    queries=(
                        Query(
                            share(_gauge("memory_used_bytes"), _gauge("memory_total_bytes")),
                            _LEGEND,
                        ),
                    ),
                ),
                Panel(
                    title="Processes of others",
                    description="At work on the GPU beside the replica: they take bandwidth and"
                    " memory from it.",
                    unit=Unit.NUMBER,
                    page="root-cause",
                    queries=_each("foreign_processes"),
                    thresholds=(Threshold(0, GOOD), Threshold(1, DOUBTFUL)),
                ),
            ),
        ),
    ),
)
