"""Metrics of the senders' clocks and of Tailspan's own clock."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from exporters.definitions.series_types import MetricSeries
from exporters.families import counter, gauge
from exporters.format.text import Families, Family
from telemetry.engines import MAX_TRACKED

LEAD: Final = MetricSeries(
    "tailspan_clock_lead_seconds",
    "Seconds by which the newest timestamp in a message is later than the arrival of the message;"
    " median over the sender's last messages. Normally 0 or slightly below. Above 0, the sender's"
    " clock is ahead. Far below 0, the clock is behind, or messages are delayed.",
    ("source",),
)
AHEAD: Final = MetricSeries(
    "tailspan_clock_ahead_seconds",
    "Seconds that are subtracted from a sender's timestamps because its clock is ahead; 0 if the"
    " clock is not ahead.",
    ("source",),
)
ROWS: Final = MetricSeries(
    "tailspan_clock_corrected_rows_total",
    "Rows of a sender whose timestamps were corrected.",
    ("source",),
)
OVERFLOWS: Final = MetricSeries(
    "tailspan_clock_untracked_messages_total",
    f"Messages of senders beyond the {MAX_TRACKED:,} tracked senders; each message is corrected"
    " separately.",
)
JUMP: Final = MetricSeries(
    "tailspan_clock_jump_seconds",
    "Seconds by which Tailspan's system clock is ahead of the time that alerts and retention use."
    " Normally 0. Other values mean that the system clock jumped or was wrong at the start: the"
    " timestamps of senders do not confirm its time.",
)
BEHIND: Final = MetricSeries(
    "tailspan_retention_behind_seconds",
    "How far the time that deletion uses is behind the time that alerts use, in seconds. Above 0,"
    " Tailspan was down or its clock jumped ahead. The time that deletion uses then runs twice as"
    " fast, until it has caught up.",
)


class SenderClock(Protocol):
    """The measured clock of a sender: `collector.rows.sender_clocks.MeasuredSenderClock`."""

    @property
    def name(self) -> str:
        """The replica's name."""

    @property
    def lead_s(self) -> float:
        """Seconds by which the sender's newest timestamps are later than the arrival of its
        messages."""

    @property
    def ahead_s(self) -> float:
        """The correction that is applied to the sender's timestamps."""

    @property
    def rows(self) -> int:
        """Rows with corrected timestamps."""


class OwnClock(Protocol):
    """Tailspan's own clock: `telemetry.corroborated_time.CorroboratedClock`."""

    def __call__(self) -> int:
        """The current time in unix nanoseconds."""

    @property
    def ahead_ns(self) -> int:
        """How far the system clock is ahead of this clock."""

    @property
    def deletable_unix_ns(self) -> int:
        """The current time that retention uses."""


class ClockMetrics(Families):
    """Reports the clocks of senders that recently sent messages, and Tailspan's own clock."""

    def __init__(
        self,
        report: Callable[[], Sequence[SenderClock]],
        own: OwnClock,
        overflows: Callable[[], int] = lambda: 0,
    ) -> None:
        self._report = report
        self._own = own
        self._overflows = overflows

    def families(self) -> Iterator[Family]:
        """Yield every family with the current values."""
        yield gauge(JUMP, {(): self._own.ahead_ns / 1e9})
        yield gauge(BEHIND, {(): max(0, self._own() - self._own.deletable_unix_ns) / 1e9})
        yield counter(OVERFLOWS, {(): self._overflows()})
        senders = self._report()
        if not senders:
            return
        yield gauge(LEAD, {(each.name,): each.lead_s for each in senders})
        yield gauge(AHEAD, {(each.name,): each.ahead_s for each in senders})
        yield counter(ROWS, {(each.name,): each.rows for each in senders})
