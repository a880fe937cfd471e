"""Time slices: time is cut into slices of equal length, and each slice is good or bad. Pure.

A slice is bad if its share of good events is below the slice's own target. A slice without events
is neither good nor bad. The budget consists of slices, so a bad minute at night weighs as much as
one at noon.

Slices end at whole multiples of their length since 1970, like the steps of a PromQL subquery, so
the rules and the live evaluator use the same slices.

Source: OpenSLO 1.0, "budgetingMethod: Timeslices".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from alerts.burnrate import Counts
from alerts.history import Bucket
from telemetry import durations


@dataclass(frozen=True, slots=True)
class Slices:
    """The length of the slices, and when a slice is good.

    Args:
        length_s: length of a slice in seconds.
        target: the share of a slice's events that must be good.
        target_written: the target as text for people.
    """

    length_s: int
    target: Fraction
    target_written: str

    @property
    def length(self) -> str:
        """The length as text for people, such as 1m."""
        return durations.render(self.length_s)

    def first_s(self, from_s: int) -> int:
        """Return the start of the slice that contains the second after an instant."""
        return from_s // self.length_s * self.length_s

    def judged(self, buckets: Iterable[Bucket], until_s: int) -> list[Bucket]:
        """Return one event for each slice that had events.

        Args:
            buckets: counts of events; no bucket crosses the boundary of two slices.
            until_s: slices that end later are left out, because they are not complete.
        """
        totals: dict[int, Counts] = {}
        for each in buckets:
            end_s = -(-each.until_s // self.length_s) * self.length_s
            if end_s <= until_s:
                totals[end_s] = totals.get(end_s, Counts(0, 0)) + each.counts
        return [
            Bucket(end_s, Counts(int(counts.bad > (1 - self.target) * counts.events), 1))
            for end_s, counts in sorted(totals.items())
            if counts.events
        ]
