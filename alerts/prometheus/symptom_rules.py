"""Rules on common causes of a burn: saturation, cache misses, failures, missing data.

Most of these alerts are tickets, because the alerts on burn rates already page. Two of them page,
because an objective may not detect their faults: Tailspan is not scraped, and an engine hangs.
"""

from typing import Final

from alerts.prometheus.rulefile import AlertingRule, RecordingRule, RuleGroup, label_text, literal
from alerts.vocabulary import ALERT_HUNG
from telemetry.engines import HUNG_REMEDY, HUNG_S

HUNG: Final = (
    "max by (model, replica) (tailspan_engine_in_flight_requests)\n"
    f"and max by (model, replica) (tailspan_engine_last_step_age_seconds) > {HUNG_S}\n"
)
"""The query uses `max`, because a front end reports the same number for each of its engines."""

MODEL: Final = label_text("model")
REPLICA: Final = label_text("replica")
ENGINE: Final = f"{REPLICA} engine {{{{ $labels.engine }}}}"


def symptom_groups(explorer_url: str) -> list[RuleGroup]:
    """Rules on Tailspan's own series."""
    link = f"{literal(explorer_url.rstrip('/'))}/?last=1h"

    def alert(
        name: str, expr: str, for_: str, summary: str, description: str, severity: str = "ticket"
    ) -> AlertingRule:
        return AlertingRule(
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
    recorded: list[RecordingRule | AlertingRule] = [
        RecordingRule(
            f"engine:tailspan_prefix_cache_{name}_tokens:increase{window}",
            f"{by_engine} (increase({series}[{window}]))",
        )
        for name, series in (("hits", hits), ("queries", queries))
        for window in ("10m", "6h")
    ]

    def cache(name: str, window: str) -> str:
        return f"engine:tailspan_prefix_cache_{name}_tokens:increase{window}"

    return [
        RuleGroup(
            "tailspan-hangs",
            "15s",
            [
                alert(
                    ALERT_HUNG,
                    HUNG,
                    "0s",
                    f"{REPLICA}: the engine hangs with"
                    ' {{ $value | printf "%.0f" }} requests in flight',
                    f"The engine has taken no step for more than {HUNG_S} s. Users wait."
                    f" {HUNG_REMEDY}",
                    "page",
                ),
            ],
        ),
        RuleGroup(
            "tailspan-saturation",
            "30s",
            [
                alert(
                    "TailspanQueueOutgrowsBatch",
                    # The last sample of an idle engine may contain a request that is about to run.
                    "avg_over_time(tailspan_engine_waiting_requests[5m])"
                    " > avg_over_time(tailspan_engine_running_requests[5m])\n"
                    "and avg_over_time(tailspan_engine_waiting_requests[5m]) >= 1\n",
                    "5m",
                    f"{ENGINE}: more requests wait than run",
                    "The queue has been longer than the batch for ten minutes: more requests"
                    " arrive than the engine can serve. Add replicas, increase --max-num-seqs, or"
                    " limit admission.",
                ),
                alert(
                    "TailspanKvCacheFull",
                    "min_over_time(tailspan_engine_kv_cache_usage_ratio[5m]) > 0.95",
                    "5m",
                    f"{ENGINE}: the KV cache stays above 95 %",
                    "New requests wait for blocks, and running requests may be evicted. Add KV"
                    " memory, use an FP8 KV cache, or reduce --max-model-len.",
                ),
                alert(
                    "TailspanPreempting",
                    "increase(tailspan_engine_preemptions_total[10m]) > 9.5",
                    "5m",
                    f'{ENGINE}: {{{{ $value | printf "%.0f" }}}} requests evicted in 10 min',
                    "Evicted requests are computed again from the start. Reduce --max-num-seqs, or"
                    " add KV memory.",
                ),
            ],
        ),
        RuleGroup(
            "tailspan-cache",
            "1m",
            [
                *recorded,
                alert(
                    "TailspanCacheHitCollapse",
                    # hits now / queries now < half of (hits before / queries before)
                    f"2 * {cache('hits', '10m')} * {cache('queries', '6h')}"
                    f" < {cache('hits', '6h')} * {cache('queries', '10m')}\n"
                    f"and {cache('hits', '6h')} > 0.2 * {cache('queries', '6h')}\n"
                    f"and {cache('queries', '10m')} > 10000\n",
                    "5m",
                    f"{ENGINE}: prefix-cache hits fell to less than half",
                    "The hit ratio of the last 10 min is less than half of the ratio of the last"
                    " 6 h. Common causes: a changed prompt prefix, lost session affinity, or a"
                    " full cache.",
                ),
            ],
        ),
        RuleGroup(
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
                    f"{MODEL}: more than 5 % of clients cancel",
                    '{{ $value | printf "%.0f" }} clients cancelled in the last 10 min before'
                    " the response was complete: users did not wait, or a timeout is too short.",
                ),
            ],
        ),
        RuleGroup(
            "tailspan-silence",
            "30s",
            [
                alert(
                    "TailspanAbsent",
                    "absent(tailspan_build_info)",
                    "5m",
                    "Prometheus cannot scrape Tailspan",
                    "Without Tailspan's metrics, no server is monitored, and no alert on an"
                    " objective can fire.",
                    "page",
                ),
                alert(
                    "TailspanNoEngines",
                    # If Tailspan is not scraped, TailspanAbsent fires instead.
                    "absent(tailspan_engine_last_sample_timestamp_seconds)"
                    " and on () count(tailspan_build_info)",
                    "10m",
                    "No engine reports to Tailspan",
                    "Tailspan has received no engine sample since it started. Either no server"
                    " runs, or the servers cannot reach Tailspan. `tailspan doctor` checks each"
                    " connection.",
                ),
                alert(
                    "TailspanEngineSilent",
                    # An engine that was scaled down never reports again, so the alert ends after an
                    # hour.
                    "time() - max by (model, replica, engine)"
                    " (tailspan_engine_last_sample_timestamp_seconds) > 60 < 3600",
                    "5m",
                    f"{ENGINE}: silent for {{{{ $value | humanizeDuration }}}}",
                    "The engine has stopped, or its plugin cannot reach Tailspan. If"
                    " you scaled it down, do nothing: this alert ends an hour after the engine's"
                    " last sample.",
                ),
                alert(
                    "TailspanDrops",
                    "max by (replica)"
                    " (increase(tailspan_instrumentation_spans_dropped_total[10m])) > 0.5",
                    "0s",
                    f"{REPLICA}: requests are not reported",
                    'The plugin dropped {{ $value | printf "%.0f" }} reports of requests in 10 min,'
                    " because Tailspan is slow or cannot be reached. Objectives count too few"
                    " requests.",
                ),
                alert(
                    "TailspanHookFailures",
                    "max by (replica)"
                    " (increase(tailspan_instrumentation_hook_failures_total[10m])) > 0.5",
                    "0s",
                    f"{REPLICA}: hooks of Tailspan's plugin fail",
                    'Hooks failed {{ $value | printf "%.0f" }} times in 10 min. vLLM is not'
                    " affected, but some of its data is not reported. The server's log has the"
                    " errors.",
                ),
                alert(
                    "TailspanTaskDown",
                    "tailspan_task_up == 0",
                    # At least five restarts have failed, or the task has had no success within its
                    # limit for 5 min.
                    "5m",
                    f"Tailspan's {label_text('task')} does not work",
                    "This component of Tailspan has failed for 5 min, although it is restarted"
                    " at least once a minute. If it is the evaluator, Tailspan sends no"
                    " notifications. First: read the reason in `tailspan doctor` or /readyz, and"
                    " the error in Tailspan's log. Common causes: the database cannot be reached,"
                    " or the disk is full.",
                ),
                alert(
                    "TailspanUnstored",
                    'sum(increase(tailspan_collector_items_total{result="unstored"}[10m])) > 0.5',
                    "5m",
                    "Tailspan cannot store the data that it receives",
                    "The database rejects the data. Senders retry for about a minute and then"
                    " drop it, so objectives count too few requests.",
                ),
            ],
        ),
    ]
