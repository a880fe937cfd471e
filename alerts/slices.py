"""Time slices: time is divided into slices of equal length, and each slice is good or bad. Pure.

A slice is bad if its share of good events is below `Slices.target`. A slice without events is
ignored. All other slices have the same weight: a bad minute at night uses as much budget as a bad
minute at noon, which has more requests. Slices end at multiples of their length from unix time 0,
like the steps of a PromQL subquery.

Source: OpenSLO 1.0, "budgetingMethod: Timeslices".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from alerts.burnrate import EventCounts
from alerts.history import HistoryBucket
from telemetry import durations


@dataclass(frozen=True, slots=True)
class Slices:
    """The length of the slices. `target` is the share of a slice's events that must be good."""

    length_s: int
    target: Fraction
    target_written: str

    @property
    def length(self) -> str:
        """The length as display text, such as 1m."""
        return durations.render(self.length_s)

    def first_s(self, from_s: int) -> int:
        """Start of the slice that contains the first second after an instant."""
        return from_s // self.length_s * self.length_s

    def judged(self, buckets: Iterable[HistoryBucket], until_s: int) -> list[HistoryBucket]:
        """The slices with events, as buckets with one good or bad event each.

        Args:
            buckets: each bucket lies within one slice.
            until_s: slices that end later are not complete, and are not returned.
        """
        totals: dict[int, EventCounts] = {}
        for each in buckets:
            end_s = -(-each.until_s // self.length_s) * self.length_s
            if end_s <= until_s:
                totals[end_s] = totals.get(end_s, EventCounts(0, 0)) + each.counts
        return [
            HistoryBucket(
                end_s, EventCounts(int(counts.bad > (1 - self.target) * counts.events), 1)
            )
            for end_s, counts in sorted(totals.items())
            if counts.events
        ]
