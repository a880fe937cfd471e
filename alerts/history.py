"""Counts over time, and what any window of them held. Pure.

A bucket's counts are of the events up to its instant: the window of length w that ends at t
holds the buckets in (t − w, t], as `increase(…[w])` at t does.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from alerts.burnrate import Counts, Policy, State, Window, judge
from alerts.periods import Span


@dataclass(frozen=True, slots=True)
class Bucket:
    """What happened since the bucket before, up to this instant."""

    until_s: int
    counts: Counts


class History:
    """An objective's counts.

    Args:
        since_s: when the counting began, in unix seconds.
        buckets: in any order; two of the same instant are added up.
        step_s: how far apart the instants are that anyone looks at. The counting is seen to
            begin at most so much after it did.
    """

    def __init__(self, since_s: int, buckets: Iterable[Bucket], step_s: int) -> None:
        ordered = sorted(buckets, key=lambda bucket: bucket.until_s)
        self._since_s = since_s
        self._step_s = step_s
        self._until_s = [bucket.until_s for bucket in ordered]
        self._bad = [0, *accumulate(bucket.counts.bad for bucket in ordered)]
        self._events = [0, *accumulate(bucket.counts.events for bucket in ordered)]

    @property
    def since_s(self) -> int:
        """When the counting began."""
        return self._since_s

    def counts(self, from_s: int, to_s: int) -> Counts:
        """The events in (from, to]."""
        first, last = bisect_right(self._until_s, from_s), bisect_right(self._until_s, to_s)
        return Counts(self._bad[last] - self._bad[first], self._events[last] - self._events[first])

    def window(self, length_s: int, at_s: int) -> Window:
        """The window of this length that ends at an instant."""
        return self.part_of(Span(at_s - length_s, at_s), at_s)

    def part_of(self, period: Span, at_s: int) -> Window:
        """A period up to an instant; what is still to come is not covered."""
        watched_s = min(at_s - period.start_s, max(0, at_s - self._since_s + self._step_s))
        covered = min(Fraction(1), Fraction(watched_s, period.length_s))
        return Window(self.counts(period.start_s, at_s), covered)


def states_at(history: History, at_s: int, policy: Policy, budget: Fraction) -> dict[str, State]:
    """What each severity says at an instant: the most urgent of what its pairs say."""
    lengths = {length for pair in policy.pairs for length in (pair.long_s, pair.short_s)}
    windows = {length: history.window(length, at_s) for length in lengths}
    told: dict[str, State] = {}
    for pair, state in judge(windows, policy, budget).items():
        before = told.get(pair.severity)
        if before is None or URGENCY.index(state) < URGENCY.index(before):
            told[pair.severity] = state
    return told


URGENCY = (State.FIRING, State.LOW_TRAFFIC, State.COLD_START, State.QUIET, State.NO_DATA)
"""The most urgent first."""
