"""The series of `/metrics`: name, help, unit and labels.

Histograms have six bounds per decade (1, 1.5, 2, 3, 5, 7.5). The lowest bound is 0.1 ms for queue
times, and 1 ms for latencies that include an engine step. Histograms are for heatmaps. Tailspan
computes no quantiles and no objectives from them. Unknown values are not counted. If a label's
value is unknown, it is the empty string.
"""

from collections.abc import Iterable
from typing import Final

from alerts import vocabulary
from alerts.groups import SLOTS
from alerts.objectives import Goodput
from exporters.definitions.cost_series import COST_SERIES
from exporters.definitions.engine_series import (
    ENGINE_GAUGES,
    ENGINE_INFO,
    ENGINE_TOTALS,
    LAST_SAMPLE,
    ROOFLINES,
)
from exporters.definitions.gpu_series import GPU_SERIES
from exporters.definitions.probe_series import PROBE_SERIES
from exporters.definitions.series_types import (
    REQUEST_LABELS,
    TENANT_LABELS,
    LatencyHistogram,
    MetricSeries,
    Recent,
    bounds_s,
)
from telemetry.sketches import LOWEST, bin_of

HISTOGRAMS: Final = (
    LatencyHistogram(
        "tailspan_ttft_seconds",
        "Time from the request's receipt to the first byte of its response, in seconds.",
        "ttft_s",
        False,
        bounds_s("-3", "300"),
        exemplars=True,
    ),
    LatencyHistogram(
        "tailspan_first_content_seconds",
        "Time from the request's receipt to the first content of its response, in seconds."
        " Reasoning and tool calls are not content.",
        "first_content_s",
        False,
        bounds_s("-3", "1000"),
    ),
    LatencyHistogram(
        "tailspan_itl_max_seconds",
        "Longest gap between two tokens of a response, in seconds.",
        "itl_max_s",
        False,
        bounds_s("-3", "100"),
        exemplars=True,
    ),
    LatencyHistogram(
        "tailspan_tpot_seconds",
        "Mean time per output token after the first, in seconds. Only responses with several"
        " tokens are counted.",
        "tpot_s",
        False,
        bounds_s("-3", "10"),
        exemplars=True,
    ),
    LatencyHistogram(
        "tailspan_e2e_seconds",
        "Time from receipt to delivery of the response, in seconds. Only completely answered"
        " requests are counted.",
        "e2e_s",
        True,
        bounds_s("-3", "1000"),
        exemplars=True,
    ),
    LatencyHistogram(
        "tailspan_queue_seconds",
        "Time in the engine's queue, in seconds. Requests aborted in the queue are included.",
        "queue_s",
        False,
        bounds_s("-4", "300"),
    ),
    LatencyHistogram(
        "tailspan_prefill_seconds",
        "Time from first scheduling to first token, in seconds. Only completely answered requests"
        " are counted.",
        "prefill_s",
        True,
        bounds_s("-3", "300"),
    ),
    LatencyHistogram(
        "tailspan_decode_seconds",
        "Time from first to last token, in seconds. Only completely answered requests are counted.",
        "decode_s",
        True,
        bounds_s("-3", "1000"),
    ),
)


def histograms(objectives: Iterable[Goodput]) -> tuple[LatencyHistogram, ...]:
    """The histograms. Their bounds include the latency thresholds of the objectives.

    Thresholds outside the grid of `telemetry.sketches` are left out, for example 0. A histogram
    cannot have such a bound.
    """
    wanted: dict[str, set[float]] = {}
    for objective in objectives:
        for field, threshold in objective.thresholds():
            if bin_of(threshold) not in (None, LOWEST):
                wanted.setdefault(field, set()).add(threshold)
    return tuple(
        each._replace(bounds_s=tuple(sorted({*each.bounds_s, *wanted.get(each.field, ())})))
        for each in HISTOGRAMS
    )


RECENT_S: Final = 300
QUANTILES: Final = {"0.5": 0.5, "0.95": 0.95, "0.99": 0.99}

_RECENTLY: Final = (
    f"of requests that ended in the last {RECENT_S // 60} min, with an error of at most 1 %, in"
    " seconds."
    " A quantile is absent below its minimum sample size."
)
RECENT: Final = (
    Recent(
        "tailspan_recent_ttft_seconds",
        "tailspan_recent_model_ttft_seconds",
        "tailspan_recent_tenant_ttft_seconds",
        f"Quantiles of the time from receipt to first byte, for streamed responses {_RECENTLY}",
        "ttft_s",
        streamed_only=True,
    ),
    Recent(
        "tailspan_recent_tpot_seconds",
        "tailspan_recent_model_tpot_seconds",
        "tailspan_recent_tenant_tpot_seconds",
        f"Quantiles of the mean time per output token after the first, {_RECENTLY}",
        "tpot_s",
    ),
    Recent(
        "tailspan_recent_itl_max_seconds",
        "tailspan_recent_model_itl_max_seconds",
        "tailspan_recent_tenant_itl_max_seconds",
        f"Quantiles of the longest gap between two tokens of a response, {_RECENTLY}",
        "itl_max_s",
    ),
    Recent(
        "tailspan_recent_e2e_seconds",
        "tailspan_recent_model_e2e_seconds",
        "tailspan_recent_tenant_e2e_seconds",
        f"Quantiles of the time from receipt to delivery, for complete responses {_RECENTLY}",
        "e2e_s",
        answered_only=True,
    ),
    Recent(
        "tailspan_recent_queue_seconds",
        "tailspan_recent_model_queue_seconds",
        "tailspan_recent_tenant_queue_seconds",
        f"Quantiles of the time in the engine's queue, {_RECENTLY}",
        "queue_s",
    ),
)
RECENT_BY_REPLICA: Final = {
    each.field: MetricSeries(each.name, each.help, (*REQUEST_LABELS, "quantile")) for each in RECENT
}
RECENT_BY_MODEL: Final = {
    each.field: MetricSeries(
        each.by_model, f"{each.help} Over all replicas.", ("model", "quantile")
    )
    for each in RECENT
}
"""Quantiles computed from all requests of a model. The quantiles of a model cannot be computed from
the quantiles of its replicas."""
RECENT_BY_TENANT: Final = {
    each.field: MetricSeries(
        each.by_tenant, f"{each.help} By tenant.", (*TENANT_LABELS, "quantile")
    )
    for each in RECENT
}

REQUESTS: Final = MetricSeries(
    "tailspan_requests_total",
    "Ended requests, by outcome: stop, length, abort, error or rejected. A joined request counts"
    " once for each of its servers.",
    (*REQUEST_LABELS, "outcome"),
)

TOKENS: Final = {
    "prompt_tokens": MetricSeries(
        "tailspan_prompt_tokens_total", "Prompt tokens of ended requests.", REQUEST_LABELS
    ),
    "cached_tokens": MetricSeries(
        "tailspan_cached_prompt_tokens_total",
        "Prompt tokens found in a prefix cache, for ended requests.",
        REQUEST_LABELS,
    ),
    "output_tokens": MetricSeries(
        "tailspan_output_tokens_total", "Output tokens of ended requests.", REQUEST_LABELS
    ),
    "reasoning_tokens": MetricSeries(
        "tailspan_reasoning_tokens_total",
        "Reasoning tokens in the output of ended requests.",
        REQUEST_LABELS,
    ),
}

COSTS: Final = {
    "cost_usd": MetricSeries(
        "tailspan_cost_usd_total",
        "Cost of ended requests with a known price, in USD: each request's share of the time of"
        " engine steps, at the engine's price when the request arrived. Idle time and recomputation"
        " are not included.",
        REQUEST_LABELS,
    ),
    "billed_s": MetricSeries(
        "tailspan_billed_engine_seconds_total",
        "Time of engine steps spent on ended requests, in seconds: the sum of their shares.",
        REQUEST_LABELS,
    ),
    "wasted_s": MetricSeries(
        "tailspan_wasted_engine_seconds_total",
        "Engine time for work that was discarded by a preemption, in seconds.",
        REQUEST_LABELS,
    ),
}

TENANT_REQUESTS: Final = MetricSeries(
    "tailspan_tenant_requests_total",
    "Ended requests, by tenant and outcome. A joined request counts once for each of its servers.",
    (*TENANT_LABELS, "outcome"),
)
TENANT_TOKENS: Final = {
    "prompt_tokens": MetricSeries(
        "tailspan_tenant_prompt_tokens_total", "Prompt tokens of ended requests.", TENANT_LABELS
    ),
    "cached_tokens": MetricSeries(
        "tailspan_tenant_cached_prompt_tokens_total",
        "Prompt tokens found in a prefix cache, for ended requests.",
        TENANT_LABELS,
    ),
    "output_tokens": MetricSeries(
        "tailspan_tenant_output_tokens_total", "Output tokens of ended requests.", TENANT_LABELS
    ),
}
"""Maps each summed field of `RequestTimeline` to its series. The series have no label for the
replica, because it would create tens of thousands of series."""

TENANT_COSTS: Final = {
    "cost_usd": MetricSeries(
        "tailspan_tenant_cost_usd_total",
        "Cost of ended requests with a known price, in USD.",
        TENANT_LABELS,
    ),
    "billed_s": MetricSeries(
        "tailspan_tenant_billed_engine_seconds_total",
        "Time of engine steps spent on ended requests, in seconds: the sum of their shares.",
        TENANT_LABELS,
    ),
}

LATE_S: Final = 60
"""A request counts as late if it is stored later than this after its end. The plugin sends every 5
s and retries for up to 30 s."""
LATE_REQUESTS: Final = MetricSeries(
    "tailspan_late_requests_total",
    f"Requests of tailspan_requests_total that were stored more than {LATE_S} s after their end.",
)

PHASE_SECONDS: Final = MetricSeries(
    "tailspan_phase_seconds_total",
    "Time that ended requests spent in each phase, in seconds. The phases of a request sum to its"
    " end-to-end time. Divide by tailspan_phased_requests_total for the mean seconds per request.",
    (*REQUEST_LABELS, "phase"),
)
PHASED_REQUESTS: Final = MetricSeries(
    "tailspan_phased_requests_total",
    "Ended requests with all phases known, which are counted in tailspan_phase_seconds_total.",
    REQUEST_LABELS,
)
PART_SECONDS: Final = MetricSeries(
    "tailspan_phase_part_seconds_total",
    "Time of queue, prefill and decode by part, in seconds. The parts of a phase sum to the phase."
    " Only requests with known parts are counted.",
    (*REQUEST_LABELS, "phase", "part"),
)

SLO_EVENTS: Final = MetricSeries(
    vocabulary.EVENTS,
    "Requests that the objective applies to, good and bad. A joined request counts once, about 15 s"
    " after its row.",
    (vocabulary.SLO,),
)
SLO_TARGET: Final = MetricSeries(
    "tailspan_slo_target_ratio",
    "The objective's target: the share of requests that must be good, 0 to 1.",
    (vocabulary.SLO,),
)
SLO_GROUPS: Final = MetricSeries(
    "tailspan_slo_groups",
    f"Number of groups with their own error budget, for objectives with `by`; at most {SLOTS}. The"
    " group `other` has the requests of all other groups.",
    (vocabulary.SLO,),
)
SLO_GOOD_EVENTS: Final = MetricSeries(
    vocabulary.GOOD_EVENTS,
    "Requests that met the objective. Latencies are compared with the exact threshold.",
    (vocabulary.SLO,),
)
SLO_EXCLUDED_EVENTS: Final = MetricSeries(
    vocabulary.EXCLUDED_EVENTS,
    "Requests of the objective that cannot be counted, by reason: aborted before the outcome was"
    " certain, client_error, unknown, or late (reported too late).",
    (vocabulary.SLO, vocabulary.REASON),
)

NOTIFICATIONS: Final = MetricSeries(
    "tailspan_notification_attempts_total",
    "Attempts to notify a channel of an incident, by result: delivered (repeats included), failed"
    " (will be retried) or dead (given up).",
    ("channel", "result"),
)

ITEMS: Final = MetricSeries(
    "tailspan_collector_items_total",
    "Spans and data points received, by result: stored (repeats included), skipped (not for"
    " Tailspan), refused (invalid) or unstored (the sender sends them again).",
    ("signal", "result", "reason"),
)
MESSAGES: Final = MetricSeries(
    "tailspan_collector_messages_total",
    "OTLP export messages to which the collector sent a response, by result.",
    ("transport", "signal", "result"),
)
TRUNCATED_TEXTS: Final = MetricSeries(
    "tailspan_collector_truncated_texts_total",
    "Label values that were truncated because they were too long.",
)
DROPPED_VALUES: Final = MetricSeries(
    "tailspan_collector_dropped_values_total",
    "Invalid optional values, which were left out of the stored rows.",
    ("reason",),
)
LISTENER_FAILURES: Final = MetricSeries(
    "tailspan_collector_listener_failures_total",
    "Batches of rows that were stored, but not counted in the metrics of this process because of"
    " an error.",
)
WAITING_MESSAGES: Final = MetricSeries(
    "tailspan_collector_waiting_messages", "Messages that were received and have no response yet."
)
WAITING_BYTES: Final = MetricSeries(
    "tailspan_collector_waiting_bytes", "Size of the messages that have no response yet, in bytes."
)
LAST_COMMIT: Final = MetricSeries(
    "tailspan_collector_last_commit_timestamp_seconds",
    "Timestamp of the store's last commit, in unix seconds; absent before the first commit.",
)
LABEL_OVERFLOWS: Final = MetricSeries(
    "tailspan_exporter_label_overflows_total",
    "Rows whose label value is beyond the limit. They are counted as 'other'; engines and GPUs"
    " beyond the limit are left out.",
    ("label",),
)
TENANT_NAMED_SINCE: Final = MetricSeries(
    "tailspan_tenant_named_since_seconds",
    "Time since which this collector counts all requests of the tenant under the tenant's name,"
    " in unix seconds; 0 if it has done so since its start. A sum over collectors is complete if"
    " every"
    " collector has this series for the tenant.",
    ("tenant",),
)
REPLICA_PARTIAL: Final = MetricSeries(
    "tailspan_replica_partial",
    "Always 1. Some requests of the replica are counted under replica 'other', because there are"
    " too many pairs of a model and a replica.",
    ("replica",),
)
LABEL_VALUES: Final = MetricSeries(
    "tailspan_exporter_label_values",
    "Current number of values of a label, or of a combination of labels.",
    ("label",),
)
LABEL_VALUES_LIMIT: Final = MetricSeries(
    "tailspan_exporter_label_values_limit",
    "Maximum number of values of a label or combination; further values become 'other'.",
    ("label",),
)
METRIC_SERIES: Final = MetricSeries(
    "tailspan_exporter_series",
    "Series in the last scrape, by metric. Each bucket of a histogram is one series.",
    ("metric",),
)
SCRAPE_SECONDS: Final = MetricSeries(
    "tailspan_exporter_last_scrape_seconds",
    "Duration of writing the previous scrape, in seconds.",
)
SCRAPE_BYTES: Final = MetricSeries(
    "tailspan_exporter_last_scrape_bytes",
    "Size of the previous scrape before compression, in bytes.",
)
REPEATED_REQUESTS: Final = MetricSeries(
    "tailspan_exporter_repeated_requests_total",
    "Requests that were received again, for example after a retry, and were not counted again.",
)
SIMULATED: Final = MetricSeries(
    "tailspan_simulated_data",
    "1 if a simulated request, engine or GPU has been received since the start, otherwise 0.",
)
BUILD: Final = MetricSeries(
    "tailspan_build_info", "Always 1. The label has the running version.", ("version", "python")
)

ALL: Final[tuple[MetricSeries | LatencyHistogram, ...]] = (
    *HISTOGRAMS,
    *RECENT_BY_REPLICA.values(),
    *RECENT_BY_MODEL.values(),
    *RECENT_BY_TENANT.values(),
    REQUESTS,
    LATE_REQUESTS,
    *TOKENS.values(),
    *COSTS.values(),
    TENANT_REQUESTS,
    *TENANT_TOKENS.values(),
    *TENANT_COSTS.values(),
    PHASE_SECONDS,
    PHASED_REQUESTS,
    PART_SECONDS,
    ENGINE_INFO,
    *ENGINE_GAUGES.values(),
    *ENGINE_TOTALS.values(),
    *ROOFLINES.values(),
    LAST_SAMPLE,
    *COST_SERIES,
    *GPU_SERIES,
    *PROBE_SERIES,
    SLO_EVENTS,
    SLO_TARGET,
    SLO_GOOD_EVENTS,
    SLO_EXCLUDED_EVENTS,
    NOTIFICATIONS,
    ITEMS,
    MESSAGES,
    TRUNCATED_TEXTS,
    DROPPED_VALUES,
    LISTENER_FAILURES,
    WAITING_MESSAGES,
    WAITING_BYTES,
    LAST_COMMIT,
    LABEL_OVERFLOWS,
    TENANT_NAMED_SINCE,
    REPLICA_PARTIAL,
    LABEL_VALUES,
    LABEL_VALUES_LIMIT,
    METRIC_SERIES,
    SCRAPE_SECONDS,
    SCRAPE_BYTES,
    REPEATED_REQUESTS,
    SIMULATED,
    BUILD,
)
