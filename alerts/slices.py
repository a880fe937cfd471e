"""Time slices: time is cut into slices of equal length, and each slice is good or bad. Pure.

A slice is bad if the share of good events in it is below its own target. A slice without events is
neither. The budget is then of slices, so a bad minute at night weighs as much as one at noon.

Slices end at whole multiples of their length since 1970, as the steps of a PromQL subquery do: the
rules and the live evaluator cut the same ones.

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
    """How time is cut, and when a slice is good.

    Args:
        length_s: of a slice.
        target: the share of a slice's events that must be good.
        target_written: the same as people read it.
    """

    length_s: int
    target: Fraction
    target_written: str

    @property
    def length(self) -> str:
        """The length as people read it: 1m."""
        return durations.render(self.length_s)

    def first_s(self, from_s: int) -> int:
        """When the slice that holds the second after an instant begins."""
        return from_s // self.length_s * self.length_s

    def judged(self, buckets: Iterable[Bucket], until_s: int) -> list[Bucket]:
        """One event for each slice that had any.

        Args:
            buckets: counts of events; no bucket reaches from one slice into the next.
            until_s: slices that end later are not over, and are left out.
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
