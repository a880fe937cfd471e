"""Clocks that are off, the senders' and our own, as Prometheus metrics."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from exporters.definitions.series_types import Series
from exporters.families import counter, gauge
from exporters.format.text import Families, Family

LEAD: Final = Series(
    "tailspan_clock_lead_seconds",
    "How far ahead of their arrival a sender's newest instants are, the middle of its last"
    " messages: about 0 or a little less; above it the clock is ahead, far below it is"
    " behind, or what it tells waits on the way.",
    ("source",),
)
AHEAD: Final = Series(
    "tailspan_clock_ahead_seconds",
    "By how much a sender's instants are set back, because its clock is ahead; 0 where it is not.",
    ("source",),
)
ROWS: Final = Series(
    "tailspan_clock_corrected_rows_total",
    "Rows of a sender whose instants were set back.",
    ("source",),
)
OVERFLOWS: Final = Series(
    "tailspan_clock_untracked_messages_total",
    "Messages of senders beyond the 1,000 whose clocks are remembered: each was judged by itself.",
)
JUMP: Final = Series(
    "tailspan_clock_jump_seconds",
    "By how much Tailspan's own clock is ahead of the time that alerts and retention follow: 0"
    " unless it jumped, or was wrong at the start, and nothing confirms it.",
)
BEHIND: Final = Series(
    "tailspan_retention_behind_seconds",
    "How far deleting is behind the time that alerts follow: it catches up at twice the speed of"
    " time after Tailspan was down, or its clock jumped ahead.",
)


class Sender(Protocol):
    """What is known of one clock; `collector.rows.sender_clocks.Source` answers."""

    @property
    def name(self) -> str:
        """The replica's."""

    @property
    def lead_s(self) -> float:
        """Of its newest instants over their arrival."""

    @property
    def ahead_s(self) -> float:
        """By how much it is set back."""

    @property
    def rows(self) -> int:
        """That were."""


class OwnClock(Protocol):
    """Our own clock; `telemetry.corroborated_time.CorroboratedClock` answers."""

    def __call__(self) -> int:
        """The present, in unix nanoseconds."""

    @property
    def ahead_ns(self) -> int:
        """By how much the system clock is ahead of it."""

    @property
    def deletable_unix_ns(self) -> int:
        """The present for deleting."""


class ClockMetrics(Families):
    """Reports the senders that were heard lately, and our own clock.

    Args:
        report: the senders.
        own: our own clock.
        overflows: how many messages came from senders that there was no room for.
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
        """Every series as of now; of senders none where none was heard."""
        yield gauge(JUMP, {(): self._own.ahead_ns / 1e9})
        yield gauge(BEHIND, {(): max(0, self._own() - self._own.deletable_unix_ns) / 1e9})
        yield counter(OVERFLOWS, {(): self._overflows()})
        senders = self._report()
        if not senders:
            return
        yield gauge(LEAD, {(each.name,): each.lead_s for each in senders})
        yield gauge(AHEAD, {(each.name,): each.ahead_s for each in senders})
        yield counter(ROWS, {(each.name,): each.rows for each in senders})
