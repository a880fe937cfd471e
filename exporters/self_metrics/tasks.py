"""Metrics that report whether each component of Tailspan works."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from exporters.definitions.series_types import MetricSeries
from exporters.families import counter, gauge
from exporters.format.text import Families, Family
from telemetry.tasks import Task

UP: Final = MetricSeries(
    "tailspan_task_up",
    "1 if the component works. 0 if its last attempt failed, it ended, or it has not succeeded for"
    " a long time.",
    ("task",),
)
FAILURES: Final = MetricSeries(
    "tailspan_task_failures_total",
    "Failed attempts of the component, which is restarted after each failure.",
    ("task",),
)
LAST_SUCCESS: Final = MetricSeries(
    "tailspan_task_last_success_timestamp_seconds",
    "Timestamp of the component's last success, in unix seconds; absent before the first success.",
    ("task",),
)


class TaskMetrics(Families):
    """Reports whether each component works."""

    def __init__(self, report: Callable[[], Sequence[tuple[Task, str | None]]]) -> None:
        self._report = report

    def families(self) -> Iterator[Family]:
        """Yield every family with the current values."""
        tasks = self._report()
        if not tasks:
            return
        yield gauge(UP, {(task.name,): int(why is None) for task, why in tasks})
        yield counter(FAILURES, {(task.name,): task.failures for task, _ in tasks})
        yield gauge(
            LAST_SUCCESS,
            {
                (task.name,): task.last_success_unix_s
                for task, _ in tasks
                if task.last_success_unix_s is not None
            },
        )
