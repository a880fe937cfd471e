"""Metrics of clocks that are off: the senders' and our own."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from exporters.definitions.series_types import Series
from exporters.families import counter, gauge
from exporters.format.text import Families, Family

LEAD: Final = Series(
    "tailspan_clock_lead_seconds",
    "How far a sender's newest timestamps are ahead of their arrival, as the median of its last"
    " messages. About 0 or slightly below; above 0 the clock is ahead, far below it is behind, or"
    " its messages are delayed.",
    ("source",),
)
AHEAD: Final = Series(
    "tailspan_clock_ahead_seconds",
    "By how much a sender's timestamps are set back because its clock is ahead; 0 if it is not.",
    ("source",),
)
ROWS: Final = Series(
    "tailspan_clock_corrected_rows_total",
    "Rows of a sender whose timestamps were set back.",
    ("source",),
)
OVERFLOWS: Final = Series(
    "tailspan_clock_untracked_messages_total",
    "Messages of senders beyond the 1,000 that are tracked; each is corrected separately.",
)
JUMP: Final = Series(
    "tailspan_clock_jump_seconds",
    "Seconds by which Tailspan's own clock is ahead of the time that alerts and retention use. It"
    " is 0 unless the clock jumped, or was wrong at the start, without confirmation by senders.",
)
BEHIND: Final = Series(
    "tailspan_retention_behind_seconds",
    "How far deletion is behind the time that alerts follow. It catches up at twice the speed of"
    " time after Tailspan was down, or its clock jumped ahead.",
)


class Sender(Protocol):
    """The measured state of a clock, such as `collector.rows.sender_clocks.Source`."""

    @property
    def name(self) -> str:
        """The replica's name."""

    @property
    def lead_s(self) -> float:
        """Return how far its newest timestamps are ahead of their arrival."""

    @property
    def ahead_s(self) -> float:
        """Return by how much its timestamps are set back."""

    @property
    def rows(self) -> int:
        """The number of rows that were set back."""


class OwnClock(Protocol):
    """Our own clock, such as `telemetry.corroborated_time.CorroboratedClock`."""

    def __call__(self) -> int:
        """Return the current time in unix nanoseconds."""

    @property
    def ahead_ns(self) -> int:
        """Return by how much the system clock is ahead of it."""

    @property
    def deletable_unix_ns(self) -> int:
        """The current time for retention."""


class ClockMetrics(Families):
    """Reports the senders that sent something lately, and our own clock.

    Args:
        report: the senders.
        own: our own clock.
        overflows: number of messages of senders that are not tracked.
    """

    def __init__(
        self,
        report: Callable[[], Sequence[Sender]],
        own: OwnClock,
        overflows: Callable[[], int] = lambda: 0,
    ) -> None:
        self._report = report
        self._own = own
        self._overflows = overflows

    def families(self) -> Iterator[Family]:
        """Yield every family as of now; families of senders only if there are senders."""
        yield gauge(JUMP, {(): self._own.ahead_ns / 1e9})
        yield gauge(BEHIND, {(): max(0, self._own() - self._own.deletable_unix_ns) / 1e9})
        yield counter(OVERFLOWS, {(): self._overflows()})
        senders = self._report()
        if not senders:
            return
        yield gauge(LEAD, {(each.name,): each.lead_s for each in senders})
        yield gauge(AHEAD, {(each.name,): each.ahead_s for each in senders})
        yield counter(ROWS, {(each.name,): each.rows for each in senders})
