"""Fleet: is anyone hurt, and where?"""

from typing import Final

from alerts import vocabulary
from dashboards.panels import BAD, DOUBTFUL, GOOD, Board, Kind, Panel, Query, Row, Threshold, Unit
from dashboards.promql import MODELS, SERVERS, TENANTS, at_quantile, of, rate, share
from exporters.definitions import series
from exporters.definitions.engine_series import ENGINE_GAUGES, LAST_SAMPLE
from exporters.definitions.series_types import Series

_UNANSWERED: Final = 'outcome=~"error|rejected"'
_BURN: Final = Series(vocabulary.burn_rate("1h"), "", (vocabulary.SLO,))

BOARD: Final = Board(
    uid="tailspan-fleet",
    title="Tailspan / Fleet",
    description="Is anyone hurt, and where? Start here, and follow a panel's link to the explorer.",
    variables=("model", "region", "replica", "tenant"),
    rows=(
        Row(
            title="Is anyone hurt?",
            panels=(
                Panel(
                    title="Fastest burn of an error budget",
                    description="How many times too fast the budget of the worst objective went in"
                    " the last hour. 1 lasts exactly as long as promised; 14.4 wakes someone.",
                    unit=Unit.TIMES,
                    kind=Kind.NUMBER,
                    width=6,
                    queries=(Query(f"max({_BURN.name})", "burn"),),
                    thresholds=(Threshold(0, GOOD), Threshold(1, DOUBTFUL), Threshold(14.4, BAD)),
                ),
                Panel(
                    title="P99 of the time to first token",
                    description="Of the worst model, of streamed answers of the last 5 min, within"
                    " 1 %. Absent under 381 requests, for then nobody knows a P99.",
                    unit=Unit.SECONDS,
                    kind=Kind.NUMBER,
                    width=6,
                    queries=(
                        Query(
                            f"max({at_quantile(series.RECENT_BY_MODEL['ttft_s'], MODELS, '0.99')})",
                            "P99",
                        ),
                    ),
                    thresholds=(Threshold(0, GOOD), Threshold(0.5, DOUBTFUL), Threshold(2, BAD)),
                ),
                Panel(
                    title="Requests",
                    description="Requests that ended, a second, whatever their outcome.",
                    unit=Unit.REQUESTS_PER_S,
                    kind=Kind.NUMBER,
                    width=6,
                    queries=(Query(rate(series.REQUESTS, SERVERS), "requests"),),
                ),
                Panel(
                    title="Failed or refused",
                    description="The share of requests with the outcome error or rejected. Clients"
                    " that left are not in it.",
                    unit=Unit.SHARE,
                    kind=Kind.NUMBER,
                    width=6,
                    queries=(
                        Query(
                            share(
                                rate(series.REQUESTS, SERVERS, _UNANSWERED),
                                rate(series.REQUESTS, SERVERS),
                            ),
                            "failed",
                        ),
                    ),
                    thresholds=(
                        Threshold(0, GOOD),
                        Threshold(0.01, DOUBTFUL),
                        Threshold(0.05, BAD),
                    ),
                ),
            ),
        ),
        Row(
            title="Where?",
            panels=(
                Panel(
                    title="P95 of the time to first token, by replica",
                    description="Of the last 5 min. One that stands apart is a replica's own"
                    " trouble; all of them together is load, or a change.",
                    unit=Unit.SECONDS,
                    queries=(
                        Query(
                            at_quantile(series.RECENT_BY_REPLICA["ttft_s"], SERVERS, "0.95"),
                            "{{replica}}",
                        ),
                    ),
                ),
                Panel(
                    title="P95 of the time to first token, by tenant",
                    description="Of the last 5 min, over all replicas. One that stands apart sends"
                    " other requests than the rest.",
                    unit=Unit.SECONDS,
                    queries=(
                        Query(
                            at_quantile(series.RECENT_BY_TENANT["ttft_s"], TENANTS, "0.95"),
                            "{{tenant}}",
                        ),
                    ),
                ),
                Panel(
                    title="Requests in the queue, by replica",
                    description="Waiting for a place in the batch. A queue that grows while the"
                    " batch does not is more load than the server bears.",
                    unit=Unit.REQUESTS,
                    queries=(
                        Query(
                            f"sum by (replica) ({of(ENGINE_GAUGES['waiting'], SERVERS)})",
                            "{{replica}}",
                        ),
                    ),
                    latency="queue",
                ),
                Panel(
                    title="Requests by tenant",
                    description="Requests that ended, a second. A flood of one tenant is the"
                    " others' queue.",
                    unit=Unit.REQUESTS_PER_S,
                    kind=Kind.STACKED,
                    queries=(
                        Query(rate(series.TENANT_REQUESTS, TENANTS, by="tenant"), "{{tenant}}"),
                    ),
                ),
                Panel(
                    title="KV cache in use, by replica",
                    description="Share of blocks. Near 1 the engine evicts requests and computes"
                    " them again.",
                    unit=Unit.SHARE,
                    most=1,
                    queries=(
                        Query(
                            f"max by (replica) ({of(ENGINE_GAUGES['kv_usage_ratio'], SERVERS)})",
                            "{{replica}}",
                        ),
                    ),
                    thresholds=(Threshold(0, GOOD), Threshold(0.8, DOUBTFUL), Threshold(0.95, BAD)),
                ),
                Panel(
                    title="Silence, by replica",
                    description="Since when nothing was heard of an engine. It tells of itself each"
                    " second; Prometheus' own interval comes on top. Above a minute its gauges"
                    " are gone from here.",
                    unit=Unit.SECONDS,
                    queries=(
                        Query(
                            f"clamp_min(time() - max by (replica) ({of(LAST_SAMPLE, SERVERS)}), 0)",
                            "{{replica}}",
                        ),
                    ),
                    thresholds=(Threshold(0, GOOD), Threshold(15, DOUBTFUL), Threshold(60, BAD)),
                ),
            ),
        ),
        Row(
            title="Tailspan itself",
            panels=(
                Panel(
                    title="Telemetry received",
                    description="Spans and data points a second, by what became of them. What is"
                    " not stored is refused, skipped, or sent again.",
                    unit=Unit.PER_S,
                    width=8,
                    queries=(Query(rate(series.ITEMS, "", by="result"), "{{result}}"),),
                ),
                Panel(
                    title="Room for label values in use",
                    description="At 1 new values become 'other', or for engines are left out.",
                    unit=Unit.SHARE,
                    most=1,
                    width=8,
                    queries=(
                        Query(
                            f"{series.LABEL_VALUES.name} / {series.LABEL_VALUES_LIMIT.name}",
                            "{{label}}",
                        ),
                    ),
                    thresholds=(Threshold(0, GOOD), Threshold(0.8, DOUBTFUL), Threshold(1, BAD)),
                ),
                Panel(
                    title="What a scrape takes",
                    description="Time to write /metrics. It grows with replicas and tenants.",
                    unit=Unit.SECONDS,
                    width=8,
                    queries=(Query(series.SCRAPE_SECONDS.name, "{{instance}}"),),
                ),
            ),
        ),
    ),
)
