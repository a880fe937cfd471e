"""An objective's counts over time, and their sum over any window. Pure.

A window of length w that ends at t contains the buckets in (t − w, t], as `increase(…[w])` does.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Final

from alerts.burnrate import EventCounts, Policy, State, WindowCounts, judge
from alerts.periods import PeriodBounds

_WHOLE: Final = Fraction(1)


@dataclass(frozen=True, slots=True)
class HistoryBucket:
    """The counts of the events after the previous bucket's instant, up to `until_s`."""

    until_s: int
    counts: EventCounts


class History:
    """An objective's counts.

    Args:
        since_s: the time at which counting began, in unix seconds.
        buckets: in any order. Counts at equal instants are added.
        step_s: the first counts may appear up to this many seconds after counting began.
    """

    def __init__(self, since_s: int, buckets: Iterable[HistoryBucket], step_s: int) -> None:
        ordered = sorted(buckets, key=lambda bucket: bucket.until_s)
        self._since_s = since_s
        self._step_s = step_s
        self._until_s = [bucket.until_s for bucket in ordered]
        self._bad = [0, *accumulate(bucket.counts.bad for bucket in ordered)]
        self._events = [0, *accumulate(bucket.counts.events for bucket in ordered)]

    @property
    def since_s(self) -> int:
        """When counting began, in unix seconds."""
        return self._since_s

    def counts(self, from_s: int, to_s: int) -> EventCounts:
        """The counts in (from, to]."""
        first, last = bisect_right(self._until_s, from_s), bisect_right(self._until_s, to_s)
        return EventCounts(
            self._bad[last] - self._bad[first], self._events[last] - self._events[first]
        )

    def window(self, length_s: int, at_s: int) -> WindowCounts:
        """The counts of the window of this length that ends at an instant."""
        return self.part_of(PeriodBounds(at_s - length_s, at_s), at_s)

    def part_of(self, period: PeriodBounds, at_s: int) -> WindowCounts:
        """The numbers of requests from the start of a period to an instant."""
        counted_s = min(at_s - period.start_s, max(0, at_s - self._since_s + self._step_s))
        whole = counted_s >= period.length_s
        covered = _WHOLE if whole else Fraction(counted_s, period.length_s)
        return WindowCounts(self.counts(period.start_s, at_s), covered)


def states_at(history: History, at_s: int, policy: Policy, budget: Fraction) -> dict[str, State]:
    """The most urgent state of each severity's window pairs at an instant."""
    lengths = {length for pair in policy.pairs for length in (pair.long_s, pair.short_s)}
    windows = {length: history.window(length, at_s) for length in lengths}
    states: dict[str, State] = {}
    for pair, state in judge(windows, policy, budget).items():
        before = states.get(pair.severity)
        if before is None or URGENCY.index(state) < URGENCY.index(before):
            states[pair.severity] = state
    return states


URGENCY = (State.FIRING, State.LOW_TRAFFIC, State.COLD_START, State.QUIET, State.NO_DATA)
"""The states, the most urgent first."""
