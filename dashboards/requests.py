"""Requests: how long they take, where the time goes, how they end."""

from typing import Final

from dashboards.panels import Board, Kind, Panel, Query, Row, Unit
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
"""By part: as the page calls it, and its colour."""
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
        description=f"{what} Of the last 5 min, by model, within 1 %; a quantile is absent where"
        " too few requests tell.",
        unit=Unit.SECONDS,
        width=8,
        latency=field.removesuffix("_s"),
        queries=tuple(
            Query(at_quantile(series.RECENT_BY_MODEL[field], MODELS, q), f"{name} {{{{model}}}}")
            for q, name in _QUANTILES.items()
        ),
    )


_TTFT: Final = next(each for each in series.HISTOGRAMS if each.field == "ttft_s")


BOARD: Final = Board(
    uid="tailspan-requests",
    title="Tailspan / Requests",
    description="How long requests take, where their time goes, and how they end.",
    variables=("model", "region", "replica", "tenant"),
    rows=(
        Row(
            title="How long?",
            panels=(
                _latency(
                    "Time to first token",
                    "ttft_s",
                    "From receipt to the first byte, of streamed answers.",
                ),
                _latency(
                    "Time per output token", "tpot_s", "Mean of each answer, after its first token."
                ),
                _latency(
                    "Longest gap between tokens", "itl_max_s", "The worst stutter of each answer."
                ),
                _latency(
                    "End to end", "e2e_s", "From receipt to delivery, of requests answered in full."
                ),
                _latency("Queue", "queue_s", "Waited for a place in the batch."),
                Panel(
                    title="Time to first token, P95 by tenant",
                    description="Of the last 5 min, of the tenants chosen above.",
                    unit=Unit.SECONDS,
                    width=8,
                    queries=(
                        Query(
                            at_quantile(series.RECENT_BY_TENANT["ttft_s"], TENANTS, "0.95"),
                            "{{tenant}}",
                        ),
                    ),
                ),
                Panel(
                    title="Time to first token, all requests",
                    description="Requests a second by how long the first byte took. Two bands are"
                    " two kinds of requests, or a server that stalls. A dot is one request"
                    " (exemplar): click it for its trace.",
                    unit=Unit.SECONDS,
                    kind=Kind.HEATMAP,
                    width=24,
                    queries=(
                        Query(buckets(_TTFT, SERVERS), "{{le}}"),
                        # It names both kinds of series, and so the exemplars of either.
                        Query(native(_TTFT, SERVERS), "all requests", exemplars=True, native=True),
                    ),
                ),
            ),
        ),
        Row(
            title="Where does the time go?",
            panels=(
                Panel(
                    title="Seconds a request, by phase",
                    description="The mean over the interval of requests that ended in it; phases"
                    " add up to end to end. The phase that grew is where to look.",
                    unit=Unit.SECONDS,
                    kind=Kind.STACKED,
                    latency="e2e",
                    colours=_PHASES,
                    queries=tuple(
                        Query(
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
                    title="Prefill and decode, by what the time was spent on",
                    description="Own work; prompts and tokens of others in the same steps; evicted"
                    " and computed again; step time that nothing explains (stall).",
                    unit=Unit.SHARE,
                    kind=Kind.STACKED,
                    most=1,
                    colours=dict(_PARTS.values()),
                    latency="e2e",
                    queries=tuple(
                        Query(
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
                    title="Waiting in the queue, by what stood in the way",
                    description="Requests in the queue on average: for a seat in the batch, for"
                    " blocks of KV cache, for the step's tokens (budget), for an adapter, cache or"
                    " grammar (held), or only for the step under way.",
                    unit=Unit.REQUESTS,
                    kind=Kind.STACKED,
                    latency="queue",
                    queries=(
                        Query(
                            rate(series.PART_SECONDS, SERVERS, 'phase="queue"', by="part"),
                            "{{part}}",
                        ),
                    ),
                ),
                Panel(
                    title="Tokens a request",
                    description="Means over the interval. Longer prompts make a longer prefill,"
                    " longer answers a longer decode: then it is the work that grew.",
                    unit=Unit.TOKENS,
                    latency="e2e",
                    queries=(
                        Query(
                            share(
                                rate(series.TOKENS["prompt_tokens"], SERVERS),
                                rate(series.REQUESTS, SERVERS),
                            ),
                            "prompt",
                        ),
                        Query(
                            share(
                                rate(series.TOKENS["cached_tokens"], SERVERS),
                                rate(series.REQUESTS, SERVERS),
                            ),
                            "of which cached",
                        ),
                        Query(
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
            title="How do they end?",
            panels=(
                Panel(
                    title="Outcomes",
                    description="Requests a second. stop and length are whole answers; abort is a"
                    " client that left; rejected never reached the engine.",
                    unit=Unit.REQUESTS_PER_S,
                    kind=Kind.STACKED,
                    colours=_OUTCOMES,
                    queries=(Query(rate(series.REQUESTS, SERVERS, by="outcome"), "{{outcome}}"),),
                ),
                Panel(
                    title="Goodput",
                    description="Requests a second that kept each objective's promise.",
                    unit=Unit.REQUESTS_PER_S,
                    queries=(Query(rate(series.SLO_GOOD_EVENTS, "", by="slo"), "{{slo}}"),),
                ),
            ),
        ),
    ),
)
