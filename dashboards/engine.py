"""Engine dashboard: queue, batch, cache and steps of the servers."""

from typing import Final

from dashboards.panels import (
    BAD,
    GOOD,
    WARNING,
    Board,
    ColourThreshold,
    GrafanaUnit,
    Panel,
    PanelQuery,
    Row,
)
from dashboards.promql import SERVERS, of, rate, share
from exporters.definitions.engine_series import ENGINE_GAUGES, ENGINE_TOTALS


def _gauge(field: str, how: str = "sum") -> PanelQuery:
    return PanelQuery(f"{how} by (replica) ({of(ENGINE_GAUGES[field], SERVERS)})", "{{replica}}")


def _rate(field: str) -> str:
    return rate(ENGINE_TOTALS[field], SERVERS, by="replica")


BOARD: Final = Board(
    uid="tailspan-engine",
    title="Tailspan / Engine",
    description="The state of the engines: queue, batch, cache, steps.",
    variables=("model", "region", "replica"),
    rows=(
        Row(
            title="Queue and batch",
            panels=(
                Panel(
                    title="Waiting",
                    description="Requests in the queue.",
                    unit=GrafanaUnit.REQUESTS,
                    width=8,
                    latency="queue",
                    queries=(_gauge("waiting"),),
                ),
                Panel(
                    title="Running",
                    description=(
                        "Requests in the batch. If the line stays at max_num_seqs while the queue"
                        " grows, the batch size is the limit."
                    ),
                    unit=GrafanaUnit.REQUESTS,
                    width=8,
                    queries=(_gauge("running"),),
                ),
                Panel(
                    title="KV cache in use",
                    description=(
                        "Share of KV-cache blocks in use. If the line stays near 1 while the"
                        " queue grows, memory is the limit."
                    ),
                    unit=GrafanaUnit.SHARE,
                    most=1,
                    width=8,
                    queries=(_gauge("kv_usage_ratio", "max"),),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(0.8, WARNING),
                        ColourThreshold(0.95, BAD),
                    ),
                ),
            ),
        ),
        Row(
            title="Work",
            panels=(
                Panel(
                    title="Prompt tokens computed",
                    description=(
                        "Prompt tokens per second that the engine computes. Prompt tokens found in"
                        " the cache are not counted."
                    ),
                    unit=GrafanaUnit.TOKENS_PER_S,
                    queries=(PanelQuery(_rate("prefill_tokens_total"), "{{replica}}"),),
                ),
                Panel(
                    title="Output tokens",
                    description="Output tokens per second.",
                    unit=GrafanaUnit.TOKENS_PER_S,
                    latency="tpot",
                    queries=(PanelQuery(_rate("decode_tokens_total"), "{{replica}}"),),
                ),
                Panel(
                    title="Prefix cache hits",
                    description=(
                        "The share of prompt tokens found in the prefix cache. If the share falls,"
                        " prefills take longer."
                    ),
                    unit=GrafanaUnit.SHARE,
                    most=1,
                    queries=(
                        PanelQuery(
                            share(
                                _rate("prefix_cache_hits_tokens_total"),
                                _rate("prefix_cache_queries_tokens_total"),
                            ),
                            "{{replica}}",
                        ),
                    ),
                ),
                Panel(
                    title="Preemptions",
                    description=(
                        "Requests per second that were evicted from the batch. Their work is"
                        " computed again later."
                    ),
                    unit=GrafanaUnit.PER_S,
                    queries=(PanelQuery(_rate("preemptions_total"), "{{replica}}"),),
                ),
            ),
        ),
        Row(
            title="Steps",
            panels=(
                Panel(
                    title="Mean step",
                    description=(
                        "Mean duration of an engine step, which is about the time between two"
                        " tokens of an answer."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    latency="tpot",
                    queries=(
                        PanelQuery(
                            share(_rate("busy_s_total"), _rate("steps_total")), "{{replica}}"
                        ),
                    ),
                ),
                Panel(
                    title="Longest step",
                    description=(
                        "The longest step of each second. A step with a long prompt delays all"
                        " answers in the batch."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    latency="itl_max",
                    queries=(_gauge("longest_step_s", "max"),),
                ),
                Panel(
                    title="Busy",
                    description=(
                        "The share of time spent in steps. If it is below 1 while requests wait"
                        " in the queue, the GPU is not the limit. A step counts when it ends, so"
                        " the "
                        "share may be above 1 for a moment."
                    ),
                    unit=GrafanaUnit.NUMBER,
                    queries=(PanelQuery(_rate("busy_s_total"), "{{replica}}"),),
                ),
            ),
        ),
    ),
)
