"""Whose clocks are off, as Prometheus metrics."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from exporters.families import counter, gauge
from exporters.kinds import Series
from exporters.text import Families, Family

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


class Sender(Protocol):
    """What is known of one clock; `collector.clocks.Source` answers."""

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


class ClockMetrics(Families):
    """Tells of the senders that were heard lately."""

    def __init__(self, report: Callable[[], Sequence[Sender]]) -> None:
        self._report = report

    def families(self) -> Iterator[Family]:
        """Every series as of now; none where nobody was heard."""
        senders = self._report()
        if not senders:
            return
        yield gauge(LEAD, {(each.name,): each.lead_s for each in senders})
        yield gauge(AHEAD, {(each.name,): each.ahead_s for each in senders})
        yield counter(ROWS, {(each.name,): each.rows for each in senders})
