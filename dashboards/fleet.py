"""Fleet dashboard: the number of affected users, and the affected replicas and tenants."""

from typing import Final

from alerts import vocabulary
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
from dashboards.promql import MODELS, SERVERS, TENANTS, at_quantile, of, rate, share
from exporters.definitions import series
from exporters.definitions.engine_series import ENGINE_GAUGES, LAST_SAMPLE
from exporters.definitions.series_types import MetricSeries

_UNANSWERED: Final = 'outcome=~"error|rejected"'
_BURN: Final = MetricSeries(vocabulary.burn_rate("1h"), "", (vocabulary.SLO,))

BOARD: Final = Board(
    uid="tailspan-fleet",
    title="Tailspan / Fleet",
    description=(
        "Are users affected, and where? Start here, and follow a panel's link to the explorer."
    ),
    variables=("model", "region", "replica", "tenant"),
    rows=(
        Row(
            title="Are users affected?",
            panels=(
                Panel(
                    title="Highest burn rate",
                    description=(
                        "The highest burn rate of an objective in the last hour. At 1, the "
                        "budget lasts exactly for the objective's period. 14.4 fires a page (an "
                        "urgent alert)."
                    ),
                    unit=GrafanaUnit.TIMES,
                    kind=PanelKind.NUMBER,
                    width=6,
                    queries=(PanelQuery(f"max({_BURN.name})", "burn"),),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(1, WARNING),
                        ColourThreshold(14.4, BAD),
                    ),
                ),
                Panel(
                    title="P99 of the time to first token",
                    description=(
                        "P99 of the slowest model, for streamed answers of the last 5 min, within"
                        " 1 % of the exact value. No value for fewer than 381 requests."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    kind=PanelKind.NUMBER,
                    width=6,
                    queries=(
                        PanelQuery(
                            f"max({at_quantile(series.RECENT_BY_MODEL['ttft_s'], MODELS, '0.99')})",
                            "P99",
                        ),
                    ),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(0.5, WARNING),
                        ColourThreshold(2, BAD),
                    ),
                ),
                Panel(
                    title="Requests",
                    description="Ended requests per second, with any outcome.",
                    unit=GrafanaUnit.REQUESTS_PER_S,
                    kind=PanelKind.NUMBER,
                    width=6,
                    queries=(PanelQuery(rate(series.REQUESTS, SERVERS), "requests"),),
                ),
                Panel(
                    title="Failed or rejected",
                    description=(
                        "The share of requests with the outcome error or rejected. Aborted"
                        " requests are not counted."
                    ),
                    unit=GrafanaUnit.SHARE,
                    decimals=3,
                    kind=PanelKind.NUMBER,
                    width=6,
                    queries=(
                        PanelQuery(
                            share(
                                rate(series.REQUESTS, SERVERS, _UNANSWERED),
                                rate(series.REQUESTS, SERVERS),
                            ),
                            "failed",
                        ),
                    ),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(0.01, WARNING),
                        ColourThreshold(0.05, BAD),
                    ),
                ),
            ),
        ),
        Row(
            title="Where?",
            panels=(
                Panel(
                    title="P95 of the time to first token, by replica",
                    description=(
                        "P95 of the last 5 min. If it rises on one replica only, this replica has"
                        " a problem. If it rises on all replicas, the cause is load or a change."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    queries=(
                        PanelQuery(
                            at_quantile(series.RECENT_BY_REPLICA["ttft_s"], SERVERS, "0.95"),
                            "{{replica}}",
                        ),
                    ),
                ),
                Panel(
                    title="P95 of the time to first token, by tenant",
                    description=(
                        "P95 of the last 5 min, over all replicas. If only one tenant has a high"
                        " P95, its requests differ from the requests of other tenants."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    queries=(
                        PanelQuery(
                            at_quantile(series.RECENT_BY_TENANT["ttft_s"], TENANTS, "0.95"),
                            "{{tenant}}",
                        ),
                    ),
                ),
                Panel(
                    title="Requests in the queue, by replica",
                    description=(
                        "If the queue grows and the batch does not, the load exceeds the server's"
                        " capacity."
                    ),
                    unit=GrafanaUnit.REQUESTS,
                    queries=(
                        PanelQuery(
                            f"sum by (replica) ({of(ENGINE_GAUGES['waiting'], SERVERS)})",
                            "{{replica}}",
                        ),
                    ),
                    latency="queue",
                ),
                Panel(
                    title="Requests by tenant",
                    description=(
                        "Ended requests per second. If one tenant sends too many requests, the"
                        " requests of other tenants wait in the queue."
                    ),
                    unit=GrafanaUnit.REQUESTS_PER_S,
                    kind=PanelKind.STACKED,
                    queries=(
                        PanelQuery(
                            rate(series.TENANT_REQUESTS, TENANTS, by="tenant"), "{{tenant}}"
                        ),
                    ),
                ),
                Panel(
                    title="KV cache in use, by replica",
                    description=(
                        "Share of KV-cache blocks in use. If the line stays near 1 while the"
                        " queue grows, memory is the limit."
                    ),
                    unit=GrafanaUnit.SHARE,
                    most=1,
                    queries=(
                        PanelQuery(
                            f"max by (replica) ({of(ENGINE_GAUGES['kv_usage_ratio'], SERVERS)})",
                            "{{replica}}",
                        ),
                    ),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(0.8, WARNING),
                        ColourThreshold(0.95, BAD),
                    ),
                ),
                Panel(
                    title="Time since the last sample, by replica",
                    description=(
                        "Engines send a sample each second. After a minute without samples, the "
                        "engine's gauges are removed."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    queries=(
                        PanelQuery(
                            f"clamp_min(time() - max by (replica) ({of(LAST_SAMPLE, SERVERS)}), 0)",
                            "{{replica}}",
                        ),
                    ),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(15, WARNING),
                        ColourThreshold(60, BAD),
                    ),
                ),
            ),
        ),
        Row(
            title="Tailspan itself",
            panels=(
                Panel(
                    title="Telemetry received",
                    description=(
                        "Spans and data points per second, by result. Items other than `stored` "
                        "are rejected, skipped, or sent again."
                    ),
                    unit=GrafanaUnit.PER_S,
                    width=8,
                    queries=(PanelQuery(rate(series.ITEMS, "", by="result"), "{{result}}"),),
                ),
                Panel(
                    title="Label values, share of the limit",
                    description=(
                        "Label values in use, divided by their limit. At 1, new values count as "
                        "'other', and new engines are omitted."
                    ),
                    unit=GrafanaUnit.SHARE,
                    most=1,
                    width=8,
                    queries=(
                        PanelQuery(
                            f"{series.LABEL_VALUES.name} / {series.LABEL_VALUES_LIMIT.name}",
                            "{{label}}",
                        ),
                    ),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(0.8, WARNING),
                        ColourThreshold(1, BAD),
                    ),
                ),
                Panel(
                    title="Time per scrape",
                    description=(
                        "Time to write /metrics. The time grows with the number of replicas and"
                        " tenants."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    width=8,
                    queries=(PanelQuery(series.SCRAPE_SECONDS.name, "{{instance}}"),),
                ),
            ),
        ),
    ),
)
