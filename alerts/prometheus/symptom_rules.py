"""Rules on what commonly lies behind a burn: saturation, cache, failures, silence.

They make tickets, not pages: a full KV cache hurts nobody until an objective burns. What is
rare enough to count is gated on volume, as burns are. Two are pages: Tailspan itself is absent, or
an engine hangs. An objective counts only some of the requests that hang before they end.
"""

from typing import Final

from alerts.prometheus.rulefile import Alert, Group, Recording, label_text, literal
from alerts.vocabulary import ALERT_HUNG
from telemetry.engines import HUNG_S, MEND_HUNG

HUNG: Final = (
    "max by (model, replica) (tailspan_engine_in_flight_requests)\n"
    f"and max by (model, replica) (tailspan_engine_last_step_age_seconds) > {HUNG_S}\n"
)
"""How many requests are in flight at a replica whose engines take no step. The limit has its
source beside it. A front end that serves several engines reports the same with each."""

MODEL: Final = label_text("model")
REPLICA: Final = label_text("replica")
ENGINE: Final = f"{REPLICA} engine {{{{ $labels.engine }}}}"


def symptom_groups(explorer_url: str) -> list[Group]:
    """The rules on Tailspan's own series."""
    link = f"{literal(explorer_url.rstrip('/'))}/?last=1h"

    def alert(
        name: str, expr: str, for_: str, summary: str, description: str, severity: str = "ticket"
    ) -> Alert:
        return Alert(
            name,
            expr,
            {"severity": severity},
            {"summary": summary, "description": description, "dashboard_url": link},
            for_=for_,
        )

    def ratio(outcome: str) -> str:
        ended = f'sum by (model) (increase(tailspan_requests_total{{outcome="{outcome}"}}[10m]))'
        every = "sum by (model) (increase(tailspan_requests_total[10m]))"
        return f"{ended} > 4.5\nand {ended} > 0.05 * {every}\n"

    by_engine = "sum by (model, replica, engine)"
    hits, queries = (
        f"tailspan_engine_prefix_cache_{each}_tokens_total" for each in ("hits", "queries")
    )
    recorded: list[Recording | Alert] = [
        Recording(
            f"engine:tailspan_prefix_cache_{name}_tokens:increase{window}",
            f"{by_engine} (increase({series}[{window}]))",
        )
        for name, series in (("hits", hits), ("queries", queries))
        for window in ("10m", "6h")
    ]

    def cache(name: str, window: str) -> str:
        return f"engine:tailspan_prefix_cache_{name}_tokens:increase{window}"

    return [
        Group(
            "tailspan-hangs",
            "15s",
            [
                alert(
                    ALERT_HUNG,
                    HUNG,
                    "0s",
                    f"{REPLICA}: the engine hangs with"
                    ' {{ $value | printf "%.0f" }} requests in flight',
                    f"It has taken no step for more than {HUNG_S} s. Users wait. {MEND_HUNG}",
                    "page",
                ),
            ],
        ),
        Group(
            "tailspan-saturation",
            "30s",
            [
                alert(
                    "TailspanQueueOutgrowsBatch",
                    # Of an idle engine, a single sample of a request that was about to run
                    # would be more than none.
                    "avg_over_time(tailspan_engine_waiting_requests[5m])"
                    " > avg_over_time(tailspan_engine_running_requests[5m])\n"
                    "and avg_over_time(tailspan_engine_waiting_requests[5m]) >= 1\n",
                    "5m",
                    f"{ENGINE}: more requests wait than run",
                    "For ten minutes the queue has been longer than the batch: arrivals exceed"
                    " what the engine serves. More replicas, a larger --max-num-seqs, or an"
                    " admission limit.",
                ),
                alert(
                    "TailspanKvCacheFull",
                    "min_over_time(tailspan_engine_kv_cache_usage_ratio[5m]) > 0.95",
                    "5m",
                    f"{ENGINE}: the KV cache stays above 95 %",
                    "New requests wait for blocks and running ones may be evicted. More KV memory,"
                    " an FP8 KV cache, or a smaller --max-model-len.",
                ),
                alert(
                    "TailspanPreempting",
                    "increase(tailspan_engine_preemptions_total[10m]) > 9.5",
                    "5m",
                    f'{ENGINE}: {{{{ $value | printf "%.0f" }}}} requests evicted in 10 min',
                    "Evicted requests are computed again from the start. Fewer sequences at once,"
                    " or more KV memory.",
                ),
            ],
        ),
        Group(
            "tailspan-cache",
            "1m",
            [
                *recorded,
                alert(
                    "TailspanCacheHitCollapse",
                    # Multiplied out: hits now / queries now < half of hits / queries before.
                    f"2 * {cache('hits', '10m')} * {cache('queries', '6h')}"
                    f" < {cache('hits', '6h')} * {cache('queries', '10m')}\n"
                    f"and {cache('hits', '6h')} > 0.2 * {cache('queries', '6h')}\n"
                    f"and {cache('queries', '10m')} > 10000\n",
                    "5m",
                    f"{ENGINE}: prefix-cache hits fell to less than half",
                    "Of the prompt tokens looked up in the last 10 min, less than half the share"
                    " of the last 6 h was found. A changed prompt prefix, lost session affinity,"
                    " or a cache under pressure.",
                ),
            ],
        ),
        Group(
            "tailspan-failures",
            "30s",
            [
                alert(
                    "TailspanErrors",
                    ratio("error"),
                    "2m",
                    f"{MODEL}: more than 5 % of requests fail",
                    '{{ $value | printf "%.0f" }} requests ended in an error in the last 10 min.',
                ),
                alert(
                    "TailspanAborts",
                    ratio("abort"),
                    "5m",
                    f"{MODEL}: more than 5 % of clients leave early",
                    '{{ $value | printf "%.0f" }} clients left in the last 10 min before their'
                    " answer was whole: impatience, or a timeout set too short.",
                ),
            ],
        ),
        Group(
            "tailspan-silence",
            "30s",
            [
                alert(
                    "TailspanAbsent",
                    "absent(tailspan_build_info)",
                    "5m",
                    "Tailspan is not being scraped",
                    "Nothing is known of any server, and no objective can alert.",
                    "page",
                ),
                alert(
                    "TailspanNoEngines",
                    # Only of a Tailspan that is scraped: otherwise TailspanAbsent says it.
                    "absent(tailspan_engine_last_sample_timestamp_seconds)"
                    " and on () count(tailspan_build_info)",
                    "10m",
                    "No engine reports to Tailspan",
                    "Since it started, Tailspan has heard of no engine: no server runs, or none"
                    " reaches it. `tailspan doctor` looks at each connection.",
                ),
                alert(
                    "TailspanEngineSilent",
                    # For an hour: after a scale-down nothing comes back, and nothing is wrong.
                    "time() - max by (model, replica, engine)"
                    " (tailspan_engine_last_sample_timestamp_seconds) > 60 < 3600",
                    "5m",
                    f"{ENGINE}: silent for {{{{ $value | humanizeDuration }}}}",
                    "The engine has stopped, or its instrumentation cannot reach Tailspan. If it"
                    " was scaled down, do nothing: this alert ends an hour after its last sample.",
                ),
                alert(
                    "TailspanDrops",
                    "max by (replica)"
                    " (increase(tailspan_instrumentation_spans_dropped_total[10m])) > 0.5",
                    "0s",
                    f"{REPLICA}: requests go unreported",
                    'The instrumentation dropped {{ $value | printf "%.0f" }} requests in 10 min:'
                    " Tailspan is slow to answer or away, and objectives count too few.",
                ),
                alert(
                    "TailspanHookFailures",
                    "max by (replica)"
                    " (increase(tailspan_instrumentation_hook_failures_total[10m])) > 0.5",
                    "0s",
                    f"{REPLICA}: the instrumentation fails",
                    'It failed {{ $value | printf "%.0f" }} times in 10 min, all contained: vLLM'
                    " serves on, and Tailspan lacks what it would have told. The server's log says"
                    " why.",
                ),
                alert(
                    "TailspanTaskDown",
                    "tailspan_task_up == 0",
                    # A part that fails is started again at least once a minute, so this is at
                    # least five attempts, or five minutes beyond the usual time between two.
                    "5m",
                    f"Tailspan's {label_text('task')} does not work",
                    "This part of Tailspan has failed for 5 min, although it is started again at"
                    " least once a minute. What it does is missing: without the evaluator, for"
                    " example, nobody is notified by Tailspan itself. First: `tailspan doctor` or"
                    " /readyz names the reason, and Tailspan's log has the whole error. A database"
                    " that cannot be reached and a full disk are the usual causes.",
                ),
                alert(
                    "TailspanUnstored",
                    'sum(increase(tailspan_collector_items_total{result="unstored"}[10m])) > 0.5',
                    "5m",
                    "Tailspan cannot store what it receives",
                    "The database does not take it. Senders repeat for about a minute, and then"
                    " drop it: objectives count too few.",
                ),
            ],
        ),
    ]
