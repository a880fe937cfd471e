"""Metrics of the last evaluation of alerts, and of notifications that are not delivered yet."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from exporters.definitions.series_types import MetricSeries
from exporters.families import gauge
from exporters.format.text import Families, Family

EVALUATED: Final = MetricSeries(
    "tailspan_evaluation_timestamp_seconds",
    "Timestamp of this collector's last complete evaluation of all objectives, in unix seconds."
    " Absent before the first evaluation. Only one of several collectors evaluates, so use the"
    " maximum over all collectors.",
)
OLDEST_PENDING: Final = MetricSeries(
    "tailspan_notification_oldest_pending_seconds",
    "Age of the oldest message that the channel has not delivered yet, in seconds; 0 if it has"
    " delivered all messages."
    " Only the collector that sends notifications has this series.",
    ("channel",),
)


class AlertingMetrics(Families):
    """Reports when alerts were last evaluated, and how old the undelivered notifications are.

    Args:
        oldest_pending_s: returns the age in seconds of each channel's oldest undelivered message.
    """

    def __init__(
        self,
        evaluated_unix_s: Callable[[], float | None],
        oldest_pending_s: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._evaluated_unix_s = evaluated_unix_s
        self._oldest_pending_s = oldest_pending_s

    def families(self) -> Iterator[Family]:
        """Yield the families with the current values."""
        evaluated_unix_s = self._evaluated_unix_s()
        if evaluated_unix_s is not None:
            yield gauge(EVALUATED, {(): evaluated_unix_s})
        if pending := self._oldest_pending_s():
            yield gauge(OLDEST_PENDING, {(name,): age_s for name, age_s in pending.items()})
