"""When the engine's steps ended, as the front end learns it: the longest gap of a request.

One append a step, nothing per token. A running request takes part in every step, so its
inter-token gaps are the gaps between the steps from its first token to its last.
"""

from bisect import bisect_left
from operator import sub


class StepClock:
    """End times of the latest steps of one engine, in its monotonic seconds."""

    def __init__(self, capacity: int = 65536) -> None:
        self._capacity = capacity
        self._ends: list[float] = []

    def tick(self, end: float) -> None:
        """Note that a step ended; one told in several portions counts once."""
        if self._ends and end <= self._ends[-1]:
            return
        self._ends.append(end)
        if len(self._ends) >= 2 * self._capacity:
            del self._ends[: self._capacity]

    def longest_gap(self, first: float, last: float) -> float | None:
        """Seconds of the longest gap between steps in [first, last].

        Returns: None where fewer than two steps ended there, or the ring no longer reaches
        back to `first`.
        """
        begin, end = bisect_left(self._ends, first), bisect_left(self._ends, last)
        if begin >= end or end >= len(self._ends) or self._ends[begin] != first:
            return None
        gaps: map[float] = map(sub, self._ends[begin + 1 : end + 1], self._ends[begin:end])
        return max(gaps)

    def gap_around(self, preempted: float, resumed: float) -> float | None:
        """Seconds from the last step before a preemption to the first one after the resumption.

        A lower bound: a recomputation that takes several steps gives its token later.
        """
        before = bisect_left(self._ends, preempted) - 1
        after = bisect_left(self._ends, resumed)
        if before < 0 or after >= len(self._ends):
            return None
        return self._ends[after] - self._ends[before]
