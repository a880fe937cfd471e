"""Quantiles of durations to within 1 %, in a few hundred integers that add up.

A duration's bin is one of a fixed grid: bin b holds what is more than γ^(b−1) and at most γ^b
seconds, with γ = 101/99, so that everything in a bin lies within 1 % of its estimate. Bins are
whole numbers, 115 to a decade from a nanosecond to 31 years. Two sketches merge by adding
their counts per bin, which is associative, exact, and what `SUM(n) … GROUP BY bin` does; their
quantiles are then those of all the durations together.

The grid never changes: a stored bin means the same for ever, and on every machine. Bounds are
the doubles nearest to (101/99)^b, computed in whole numbers, and a duration is looked up among
them, where a logarithm's last digit would depend on the processor.

Cost: 0.5 µs for a single duration, 0.07 µs for each in a column (benchmarks/sketches.py).
Source: DDSketch, Masson et al., VLDB 2019, arXiv 1908.10693.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from telemetry.quantiles import FloatArray, nearest_rank

IntArray = NDArray[np.int64]

ALPHA: Final = 0.01
"""The relative error of an estimate, at most."""
LOWEST: Final = -1036
"""Holds what is under a nanosecond, 0 included: estimated as 0."""
HIGHEST: Final = 1036
"""Up to some 10⁹ s."""

_ABOVE, _BELOW = 101, 99
"""γ = (1 + α)/(1 − α) as whole numbers."""


@cache
def _bounds_s() -> list[float]:
    """The upper bounds of all bins. A quotient of two whole numbers is rounded once."""
    up = [_ABOVE**n / _BELOW**n for n in range(HIGHEST + 1)]
    down = [_BELOW**n / _ABOVE**n for n in range(-LOWEST, 0, -1)]
    return [*down, *up]


@cache
def _bounds_array_s() -> FloatArray:
    return np.array(_bounds_s())


def bin_of(value_s: float) -> int | None:
    """The bin of one duration; None where it is no duration: negative, NaN, or past the grid."""
    bounds_s = _bounds_s()
    # Not `value_s < 0 or …`: NaN compares false to everything.
    if not 0 <= value_s <= bounds_s[-1]:
        return None
    return LOWEST + bisect_left(bounds_s, value_s)


def bins_of(values_s: FloatArray) -> IntArray:
    """The bins of a column of durations, each of which `bin_of` has one for."""
    return LOWEST + np.searchsorted(_bounds_array_s(), values_s)


def bins_within(values_s: FloatArray) -> tuple[IntArray, IntArray]:
    """The bins of those that have one, and where they are; NaN has none."""
    (places,) = np.nonzero((values_s >= 0) & (values_s <= _bounds_s()[-1]))
    return bins_of(values_s[places]), places


def estimate_s(bin_: int) -> float:
    """A duration within 1 % of all that the bin holds: 2γ^b/(γ + 1)."""
    return 0.0 if bin_ == LOWEST else _bounds_s()[bin_ - LOWEST] * (_BELOW / 100)


def quantile_s(counts: Mapping[int, int], q: float) -> float | None:
    """The quantile at the nearest rank, ⌈n·q⌉ of n, as `telemetry.quantiles` has it.

    Args:
        counts: durations by bin, none negative.
        q: in (0, 1).

    Returns:
        Seconds, within 1 % of the duration at that rank; None where there are none.

    Raises:
        ValueError: q outside (0, 1).
    """
    found = quantiles_s(counts, (q,))
    return found[0] if found else None


def quantiles_s(counts: Mapping[int, int], qs: Iterable[float]) -> list[float]:
    """Several quantiles at the cost of one, in the order asked for; empty where there are none."""
    ordered = sorted(counts)
    # Not numpy: of some hundred bins the lists take a third of the time.
    cumulative = list(accumulate(map(counts.__getitem__, ordered)))
    number = cumulative[-1] if ordered else 0
    ranks = [nearest_rank(number, q) for q in qs]
    if number == 0:
        return []
    return [estimate_s(ordered[bisect_left(cumulative, rank)]) for rank in ranks]


@dataclass(slots=True)
class Sketch:
    """A summary of a set of durations.

    `sum_ns` counts whole nanoseconds: sums of floats depend on the order. Values that
    are no durations are counted separately and in none of the others.
    """

    counts: dict[int, int] = field(default_factory=dict)
    """By bin."""
    sum_ns: int = 0
    min_s: float | None = None
    max_s: float | None = None
    negative: int = 0
    unusable: int = 0
    """NaN, infinite, or more than the grid holds."""

    @property
    def number(self) -> int:
        """How many durations there were."""
        return sum(self.counts.values())

    def quantile_s(self, q: float) -> float | None:
        """As the function of this name."""
        return quantile_s(self.counts, q)

    def add(self, value_s: float) -> None:
        """Take one duration."""
        bin_ = bin_of(value_s)
        if bin_ is None:
            if value_s < 0:
                self.negative += 1
            else:
                self.unusable += 1
            return
        counts = self.counts
        counts[bin_] = counts.get(bin_, 0) + 1
        self.sum_ns += round(value_s * 1e9)
        # Written out: this is the path of every request as it comes in.
        if self.min_s is None or value_s < self.min_s:
            self.min_s = value_s
        if self.max_s is None or value_s > self.max_s:
            self.max_s = value_s

    def add_column(self, values_s: FloatArray) -> None:
        """Take many.

        Args:
            values_s: (n,) in any order; unknown ones left out beforehand.
        """
        below = values_s < 0
        good = (values_s >= 0) & (values_s <= _bounds_s()[-1])
        self.negative += int(np.count_nonzero(below))
        self.unusable += int(values_s.size - np.count_nonzero(below | good))
        values_s = values_s[good]
        if values_s.size == 0:
            return
        held = np.bincount(bins_of(values_s) - LOWEST)
        (places,) = np.nonzero(held)
        added = zip((places + LOWEST).tolist(), held[places].tolist(), strict=True)
        self._add_counts(added)
        # In two halves: ten of the longest durations overflow 64 bits.
        upper, lower = np.divmod(np.rint(values_s * 1e9).astype(np.int64), 1 << 31)
        self.sum_ns += (int(upper.sum()) << 31) + int(lower.sum())
        self._widen(float(values_s.min()), float(values_s.max()))

    def merge(self, other: "Sketch") -> None:
        """Take all that another has."""
        self._add_counts(other.counts.items())
        self.sum_ns += other.sum_ns
        self.negative += other.negative
        self.unusable += other.unusable
        if other.min_s is not None and other.max_s is not None:
            self._widen(other.min_s, other.max_s)

    def _add_counts(self, added: Iterable[tuple[int, int]]) -> None:
        for bin_, number in added:
            self.counts[bin_] = self.counts.get(bin_, 0) + number

    def _widen(self, low_s: float, high_s: float) -> None:
        self.min_s = low_s if self.min_s is None else min(self.min_s, low_s)
        self.max_s = high_s if self.max_s is None else max(self.max_s, high_s)
