"""The series of probes, named as in Prometheus' blackbox_exporter.

Gauges report the latest probe of each endpoint and region. If a probe was not sent, or was stopped
by Ctrl-C, only its outcome is counted. An answer from a cache counts as a success, but its duration
is not reported.
"""

from collections.abc import Mapping
from typing import Final

from exporters.definitions.series_types import MetricSeries

PROBE_LABELS: Final = ("region", "endpoint", "model")

SUCCESS: Final = MetricSeries(
    "tailspan_probe_success",
    "1 if the latest probe received a complete answer, otherwise 0.",
    PROBE_LABELS,
)
DURATION: Final = MetricSeries(
    "tailspan_probe_duration_seconds",
    "Phases of the latest probe, in seconds: late, resolve, connect, tls, processing (connection"
    " ready → first event), transfer (first event → end). They sum to the whole wait.",
    (*PROBE_LABELS, "phase"),
)
GAUGES: Final[Mapping[str, MetricSeries]] = {
    "first_reasoning_s": MetricSeries(
        "tailspan_probe_first_reasoning_seconds",
        "Time from the ready connection to the first reasoning token of the latest probe, in"
        " seconds.",
        PROBE_LABELS,
    ),
    "first_content_s": MetricSeries(
        "tailspan_probe_first_content_seconds",
        "Time from the ready connection to the first content token of the latest probe, in"
        " seconds.",
        PROBE_LABELS,
    ),
    "itl_max_s": MetricSeries(
        "tailspan_probe_longest_gap_seconds",
        "Longest gap between two streamed events with tokens, in the latest probe, in seconds.",
        PROBE_LABELS,
    ),
    "e2e_s": MetricSeries(
        "tailspan_probe_e2e_seconds",
        "Time from the ready connection to the end of the answer of the latest probe, in seconds.",
        PROBE_LABELS,
    ),
    "http_status": MetricSeries(
        "tailspan_probe_http_status_code", "HTTP status of the latest probe.", PROBE_LABELS
    ),
    "certificate_ends_unix_s": MetricSeries(
        "tailspan_probe_ssl_earliest_cert_expiry",
        "End of validity of the server's certificate, in unix seconds.",
        PROBE_LABELS,
    ),
}
LAST: Final = MetricSeries(
    "tailspan_probe_last_timestamp_seconds",
    "When the latest probe was due, in unix seconds.",
    PROBE_LABELS,
)
RESULTS: Final = MetricSeries(
    "tailspan_probe_results_total",
    "Probes by outcome. stop, length and cached (a cache in front of the model answered) are"
    " successes; missed and over_budget were not sent.",
    (*PROBE_LABELS, "outcome"),
)
COST: Final = MetricSeries(
    "tailspan_probe_cost_usd_total",
    "List price of the probes' tokens, in US dollars. Endpoints without a known price have no"
    " series.",
    PROBE_LABELS,
)
UNLISTED: Final = MetricSeries(
    "tailspan_probe_unlisted_results_total",
    "Probes of endpoints beyond the limit on endpoints. No other series contains these probes.",
)

PROBE_SERIES: Final = (SUCCESS, DURATION, *GAUGES.values(), LAST, RESULTS, COST, UNLISTED)
PHASES: Final = ("late", "resolve", "connect", "tls", "processing", "transfer")
