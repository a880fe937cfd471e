"""Operation dashboard: whether Tailspan itself works."""

from typing import Final

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
from dashboards.promql import rate, share
from exporters.definitions.series import (
    BUILD,
    DROPPED_VALUES,
    ITEMS,
    LAST_COMMIT,
    LATE_REQUESTS,
    LATE_S,
    LISTENER_FAILURES,
    NOTIFICATIONS,
    REQUESTS,
    SCRAPE_SECONDS,
    WAITING_BYTES,
)
from exporters.format.exposition import CPU, MEMORY
from exporters.self_metrics.alerting import EVALUATED, OLDEST_PENDING
from exporters.self_metrics.clocks import BEHIND
from exporters.self_metrics.tasks import FAILURES, UP

_ALL: Final = "all collectors"
_LAG: Final = f"clamp_min(time() - max({EVALUATED.name}), 0)"
_OLDEST: Final = f"max({OLDEST_PENDING.name}) or vector(0)"


def _of_tailspan(series: str) -> str:
    """The series of Tailspan's own processes. Other programs also export
    `process_cpu_seconds_total`."""
    return f"{series} and on (job, instance) {BUILD.name}"


def _result(name: str) -> str:
    return f'result="{name}"'


def _increase(name: str, where: str = "") -> str:
    return f"sum(increase({name}{where}[$__range]))"


def _share_of(bad: str, every: str) -> str:
    return f"1 - {share(f'({bad} or vector(0))', every)}"


BOARD: Final = Board(
    uid="tailspan-operation",
    title="Tailspan / Operation",
    description=(
        "Whether Tailspan itself stores telemetry, evaluates objectives and sends notifications."
    ),
    variables=(),
    rows=(
        Row(
            title="Now",
            panels=(
                Panel(
                    title="Stored items",
                    description=(
                        "The share of the valid spans and data points that Tailspan stored at "
                        "the first attempt. Senders send the rest again."
                    ),
                    unit=GrafanaUnit.SHARE,
                    kind=PanelKind.NUMBER,
                    width=6,
                    most=1,
                    queries=(
                        PanelQuery(
                            _share_of(
                                _increase(ITEMS.name, '{result="unstored"}'),
                                _increase(ITEMS.name, '{result=~"stored|unstored"}'),
                            ),
                            _ALL,
                        ),
                    ),
                    thresholds=(
                        ColourThreshold(0, BAD),
                        ColourThreshold(0.99, WARNING),
                        ColourThreshold(0.999, GOOD),
                    ),
                ),
                Panel(
                    title="Fresh requests",
                    description=(
                        "The share of the requests in the range shown that were stored within"
                        f" {LATE_S} s of their end."
                    ),
                    unit=GrafanaUnit.SHARE,
                    kind=PanelKind.NUMBER,
                    width=6,
                    most=1,
                    queries=(
                        PanelQuery(
                            _share_of(_increase(LATE_REQUESTS.name), _increase(REQUESTS.name)), _ALL
                        ),
                    ),
                    thresholds=(
                        ColourThreshold(0, BAD),
                        ColourThreshold(0.95, WARNING),
                        ColourThreshold(0.99, GOOD),
                    ),
                ),
                Panel(
                    title="Time since the last evaluation",
                    description="Objectives are evaluated every 15 s by one of the collectors.",
                    unit=GrafanaUnit.SECONDS,
                    kind=PanelKind.NUMBER,
                    width=6,
                    queries=(PanelQuery(_LAG, _ALL),),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(30, WARNING),
                        ColourThreshold(60, BAD),
                    ),
                ),
                Panel(
                    title="Oldest undelivered message",
                    description=(
                        "The age of the oldest message that a channel has not delivered; 0 if all"
                        " are delivered."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    kind=PanelKind.NUMBER,
                    width=6,
                    queries=(PanelQuery(_OLDEST, "all channels"),),
                    thresholds=(
                        ColourThreshold(0, GOOD),
                        ColourThreshold(30, WARNING),
                        ColourThreshold(60, BAD),
                    ),
                ),
            ),
        ),
        Row(
            title="Ingest",
            panels=(
                Panel(
                    title="Items per second, by result",
                    description=(
                        "Spans and data points: stored, skipped (not for Tailspan), refused"
                        " (invalid) or unstored (the sender repeats them)."
                    ),
                    unit=GrafanaUnit.PER_S,
                    kind=PanelKind.STACKED,
                    queries=(PanelQuery(rate(ITEMS, "", by="result"), "{{result}}"),),
                ),
                Panel(
                    title="Late requests per second",
                    description=(
                        f"Requests that were stored more than {LATE_S} s after their end, for"
                        " example after an outage of Tailspan or of the network."
                    ),
                    unit=GrafanaUnit.REQUESTS_PER_S,
                    queries=(PanelQuery(rate(LATE_REQUESTS, ""), _ALL),),
                ),
                Panel(
                    title="Time since the last commit",
                    description=(
                        "By collector. The time grows while no data arrives, or while the"
                        " database does not respond."
                    ),
                    unit=GrafanaUnit.SECONDS,
                    queries=(
                        PanelQuery(
                            f"clamp_min(time() - max by (instance) ({LAST_COMMIT.name}), 0)",
                            "{{instance}}",
                        ),
                    ),
                ),
                Panel(
                    title="Size of unanswered messages",
                    description=(
                        "Messages that wait for their commit, by collector. At 256 MiB, a"
                        " collector asks its senders to wait."
                    ),
                    unit=GrafanaUnit.BYTES,
                    queries=(
                        PanelQuery(f"max by (instance) ({WAITING_BYTES.name})", "{{instance}}"),
                    ),
                ),
            ),
        ),
        Row(
            title="Evaluation and notification",
            panels=(
                Panel(
                    title="Evaluation lag",
                    description="The time since the last evaluation of all objectives.",
                    unit=GrafanaUnit.SECONDS,
                    queries=(PanelQuery(_LAG, _ALL),),
                ),
                Panel(
                    title="Attempts to notify",
                    description=(
                        "Attempts per second of all channels: delivered, failed (will be retried)"
                        " or dead (given up)."
                    ),
                    unit=GrafanaUnit.PER_S,
                    queries=tuple(
                        PanelQuery(f"{rate(NOTIFICATIONS, _result(each))} or vector(0)", each)
                        for each in ("delivered", "failed", "dead")
                    ),
                ),
                Panel(
                    title="Delay of deletion",
                    description="By how much the deletion of old rows is late. Normally 0.",
                    unit=GrafanaUnit.SECONDS,
                    queries=(PanelQuery(f"max({BEHIND.name})", _ALL),),
                ),
                Panel(
                    title="Values and batches that were left out",
                    description=(
                        "Per second: invalid optional values that were not stored, and batches"
                        " that were stored but that a collector's metrics do not count."
                    ),
                    unit=GrafanaUnit.PER_S,
                    queries=(
                        PanelQuery(f"{rate(DROPPED_VALUES, '')} or vector(0)", "values"),
                        PanelQuery(rate(LISTENER_FAILURES, ""), "batches"),
                    ),
                ),
            ),
        ),
        Row(
            title="Components",
            panels=(
                Panel(
                    title="Components that do not work",
                    description="The number of collectors in which each component does not work.",
                    unit=GrafanaUnit.NUMBER,
                    queries=(PanelQuery(f"sum by (task) (1 - {UP.name})", "{{task}}"),),
                ),
                Panel(
                    title="Failed attempts, by component",
                    description="Each failed component is restarted at least once a minute.",
                    unit=GrafanaUnit.PER_S,
                    queries=(PanelQuery(rate(FAILURES, "", by="task"), "{{task}}"),),
                ),
                Panel(
                    title="CPUs",
                    description="CPU time per second of each collector's own process.",
                    unit=GrafanaUnit.CPUS,
                    queries=(
                        PanelQuery(
                            _of_tailspan(f"rate({CPU.name}[$__rate_interval])"),
                            "{{instance}}",
                        ),
                    ),
                ),
                Panel(
                    title="Memory",
                    description="Resident memory of each collector's own process.",
                    unit=GrafanaUnit.BYTES,
                    queries=(PanelQuery(_of_tailspan(MEMORY.name), "{{instance}}"),),
                ),
                Panel(
                    title="Duration of a scrape",
                    description="The time that a collector takes to write /metrics.",
                    unit=GrafanaUnit.SECONDS,
                    queries=(
                        PanelQuery(f"max by (instance) ({SCRAPE_SECONDS.name})", "{{instance}}"),
                    ),
                ),
            ),
        ),
    ),
)
