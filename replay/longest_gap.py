"""The longest step since a given one, without a list of all steps.

Pure. A decreasing stack: a step removes all earlier ones that were not longer. Adding is O(1)
amortised, a query is O(log n); the stack stays a few entries long.
"""

from bisect import bisect_right
from collections.abc import Iterable


class LongestSince:
    """Durations of numbered steps; queried for the longest after a number."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._durations_s: list[float] = []

    def add(self, number: int, duration_s: float) -> None:
        """Add a step; numbers ascend."""
        durations_s, numbers = self._durations_s, self._numbers
        while durations_s and durations_s[-1] <= duration_s:
            durations_s.pop()
            numbers.pop()
        durations_s.append(duration_s)
        numbers.append(number)

    def extend(self, first: int, durations_s: Iterable[float]) -> None:
        """Add steps numbered from `first` on."""
        for number, duration_s in enumerate(durations_s, first):
            self.add(number, duration_s)

    def longest_s(self, after: int) -> float | None:
        """Return the longest step with a number greater than `after`; None if there is none."""
        at = bisect_right(self._numbers, after)
        return self._durations_s[at] if at < len(self._numbers) else None

    def clear(self) -> None:
        """Remove all steps: no request that saw them is left."""
        self._numbers.clear()
        self._durations_s.clear()
