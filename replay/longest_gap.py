"""Find the longest step after a given step, without a list of all steps.

Pure. A stack contains steps of decreasing durations. When a step is added, all earlier steps that
are not longer are removed. Adding a step is amortised O(1), and a query is O(log n).
"""

from bisect import bisect_right
from collections.abc import Iterable


class LongestSince:
    """Stores durations of numbered steps, and finds the longest step after a given number."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._durations_s: list[float] = []

    def add(self, number: int, duration_s: float) -> None:
        """Add a step. The step's number must be higher than all earlier numbers."""
        durations_s, numbers = self._durations_s, self._numbers
        while durations_s and durations_s[-1] <= duration_s:
            durations_s.pop()
            numbers.pop()
        durations_s.append(duration_s)
        numbers.append(number)

    def extend(self, first: int, durations_s: Iterable[float]) -> None:
        """Add consecutive steps. The first step has the number `first`."""
        for number, duration_s in enumerate(durations_s, first):
            self.add(number, duration_s)

    def longest_s(self, after: int) -> float | None:
        """Return the duration of the longest step with a number above `after`, or None if there is
        no such step."""
        at = bisect_right(self._numbers, after)
        return self._durations_s[at] if at < len(self._numbers) else None

    def clear(self) -> None:
        """Remove all steps. Call this only if no unfinished request had work in these steps."""
        self._numbers.clear()
        self._durations_s.clear()
