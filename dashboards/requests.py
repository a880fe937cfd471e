"""Requests dashboard: latencies, phases and outcomes."""

from typing import Final

from dashboards.panels import Board, GrafanaUnit, Panel, PanelKind, PanelQuery, Row
from dashboards.promql import MODELS, SERVERS, TENANTS, at_quantile, buckets, native, rate, share
from exporters.definitions import series
from telemetry import phase_colours

_PHASES: Final = {
    "frontend": phase_colours.FRONTEND,
    "queue": phase_colours.QUEUE,
    "prefill": phase_colours.PREFILL,
    "decode": phase_colours.DECODE,
    "delivery": phase_colours.DELIVERY,
}
_PARTS: Final = {
    "own": ("own work", phase_colours.DECODE),
    "others_prefill": ("others' prefill", phase_colours.OTHERS),
    "others_decode": ("others' decode", "#8f5bb5"),
    "preempted": ("preempted", phase_colours.PREEMPTED),
    "stall": ("stall", phase_colours.STALL),
}
_OUTCOMES: Final = {
    "stop": "#4f9a57",
    "length": "#a3c9a8",
    "abort": "#8a8f98",
    "error": "#c8242b",
    "rejected": "#e5aa1f",
}
_QUANTILES: Final = {"0.5": "P50", "0.95": "P95", "0.99": "P99"}


def _latency(title: str, field: str, what: str) -> Panel:
    return Panel(
        title=title,
        description=(
            f"{what} The values cover the last 5 min, by model, and are within 1 % of the exact"
            " quantiles. A quantile has no value if there are too few requests."
        ),
        unit=GrafanaUnit.SECONDS,
        width=8,
        latency=field.removesuffix("_s"),
        queries=tuple(
            PanelQuery(
                at_quantile(series.RECENT_BY_MODEL[field], MODELS, q), f"{name} {{{{model}}}}"
            )
            for q, name in _QUANTILES.items()
        ),
    )


_TTFT: Final = next(each for each in series.HISTOGRAMS if each.field == "ttft_s")


BOARD: Final = Board(
    uid="tailspan-requests",
    title="Tailspan / Requests",
    description=(
        "Latencies, phases and outcomes of the requests. If prefill and decode are on different "
        "servers, a request counts once for each server, with this server's times; only objectives "
        "count it once."
    ),
    variables=("model", "region", "replica", "tenant"),
    rows=(
        Row(
            title="Latency",
            panels=(
                _latency(
                    "Time to first token",
                    "ttft_s",
                    "Time from receipt to the first byte, for streamed answers.",
                ),
                _latency(
                    "Time per output token",
                    "tpot_s",
                    "Mean time per token of an answer, after the first token.",
                ),
                _latency(
                    "Longest gap between tokens",
                    "itl_max_s",
                    "The longest pause between two tokens of an answer.",
                ),
                _latency(
                    "End to end",
                    "e2e_s",
                    "Time from receipt to delivery, for complete answers.",
                ),
                _latency(
                    "Queue", "queue_s", "Time in the queue, before the request enters the batch."
                ),
                Panel(
                    title="Time to first token, P95 by tenant",
                    description="P95 of the last 5 min, for the selected tenants.",
                    unit=GrafanaUnit.SECONDS,
                    width=8,
                    queries=(
                        PanelQuery(
                            at_quantile(series.RECENT_BY_TENANT["ttft_s"], TENANTS, "0.95"),
                            "{{tenant}}",
                        ),
                    ),
                ),
                Panel(
                    title="Time to first token, all requests",
                    description=(
                        "Requests per second by time to first byte. Two bands mean that there are"
                        " two kinds of requests, or that a server stalls. Each dot is one request"
                        " (an exemplar); click it to open its trace."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    kind=PanelKind.HEATMAP,
                    width=24,
                    queries=(
                        PanelQuery(buckets(_TTFT, SERVERS), "{{le}}"),
                        # This query also selects the classic buckets, so the panel shows the
                        # exemplars of classic and native histograms.
                        PanelQuery(
                            native(_TTFT, SERVERS), "all requests", exemplars=True, native=True
                        ),
                    ),
                ),
            ),
        ),
        Row(
            title="Time by phase and part",
            panels=(
                Panel(
                    title="Seconds per request, by phase",
                    description=(
                        "Mean of the requests that ended in the interval. The phases sum to the "
                        "end-to-end latency. If latency grew, the phase that grew shows where to"
                        " look for the cause."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    kind=PanelKind.STACKED,
                    latency="e2e",
                    colours=_PHASES,
                    queries=tuple(
                        PanelQuery(
                            share(
                                rate(series.PHASE_SECONDS, SERVERS, f'phase="{phase}"'),
                                rate(series.PHASED_REQUESTS, SERVERS),
                            ),
                            phase,
                        )
                        for phase in _PHASES
                    ),
                ),
                Panel(
                    title="Prefill and decode, by part",
                    description=(
                        "The request's own work, other requests' prompts and tokens in the same "
                        "steps, eviction and recomputation, and unexplained step time (stall)."
                    ),
                    unit=GrafanaUnit.SHARE,
                    kind=PanelKind.STACKED,
                    most=1,
                    colours=dict(_PARTS.values()),
                    latency="e2e",
                    queries=tuple(
                        PanelQuery(
                            share(
                                rate(
                                    series.PART_SECONDS,
                                    SERVERS,
                                    'phase=~"prefill|decode"',
                                    f'part="{part}"',
                                ),
                                rate(series.PART_SECONDS, SERVERS, 'phase=~"prefill|decode"'),
                            ),
                            name,
                        )
                        for part, (name, _) in _PARTS.items()
                    ),
                ),
                Panel(
                    title="Waiting requests, by reason",
                    description=(
                        "Mean number of waiting requests, by what they wait for: space in the "
                        "batch, KV blocks, the token budget, an adapter, cache or grammar "
                        "(held), or the end of the step."
                    ),
                    unit=GrafanaUnit.REQUESTS,
                    kind=PanelKind.STACKED,
                    latency="queue",
                    queries=(
                        PanelQuery(
                            rate(series.PART_SECONDS, SERVERS, 'phase="queue"', by="part"),
                            "{{part}}",
                        ),
                    ),
                ),
                Panel(
                    title="Tokens per request",
                    description=(
                        "Mean number of tokens in the interval. Longer prompts lengthen the"
                        " prefill, and longer answers lengthen the decode."
                    ),
                    unit=GrafanaUnit.TOKENS,
                    latency="e2e",
                    queries=(
                        PanelQuery(
                            share(
                                rate(series.TOKENS["prompt_tokens"], SERVERS),
                                rate(series.REQUESTS, SERVERS),
                            ),
                            "prompt",
                        ),
                        PanelQuery(
                            share(
                                rate(series.TOKENS["cached_tokens"], SERVERS),
                                rate(series.REQUESTS, SERVERS),
                            ),
                            "of which cached",
                        ),
                        PanelQuery(
                            share(
                                rate(series.TOKENS["output_tokens"], SERVERS),
                                rate(series.REQUESTS, SERVERS),
                            ),
                            "output",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            title="Outcomes and goodput",
            panels=(
                Panel(
                    title="Outcomes",
                    description=(
                        "Requests per second. stop and length are complete answers; abort means"
                        " that the client disconnected; rejected requests never reached the engine."
                    ),
                    unit=GrafanaUnit.REQUESTS_PER_S,
                    kind=PanelKind.STACKED,
                    colours=_OUTCOMES,
                    queries=(
                        PanelQuery(rate(series.REQUESTS, SERVERS, by="outcome"), "{{outcome}}"),
                    ),
                ),
                Panel(
                    title="Goodput",
                    description="Requests per second that met each objective.",
                    unit=GrafanaUnit.REQUESTS_PER_S,
                    queries=(PanelQuery(rate(series.SLO_GOOD_EVENTS, "", by="slo"), "{{slo}}"),),
                ),
            ),
        ),
    ),
)
