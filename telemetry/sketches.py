"""Estimate quantiles of durations within 1 %, with mergeable sketches.

Bin b of the grid contains durations above γ^(b−1) and up to γ^b seconds, with γ = 101/99. The grid
has 115 bins per decade, from a nanosecond to 31 years. The grid never changes, so stored bins keep
their meaning. The bounds are computed with integers, and the bin of a duration is found by a binary
search. A logarithm would be inexact, because its last digit depends on the processor. Adding a
duration takes 0.5 µs. Adding a column takes 0.07 µs per duration (benchmarks/sketches.py). Source:
DDSketch, Masson et al., VLDB 2019, arXiv 1908.10693.
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
"""Maximum relative error of an estimate."""
LOWEST: Final = -1036
"""The bin of durations below a nanosecond, including 0. Its estimate is 0."""
HIGHEST: Final = 1036

_ABOVE, _BELOW = 101, 99
"""The numerator and the denominator of γ = (1 + ALPHA)/(1 − ALPHA)."""


@cache
def _bounds_s() -> list[float]:
    """The upper bound of each bin, rounded once to a double."""
    up = [_ABOVE**n / _BELOW**n for n in range(HIGHEST + 1)]
    down = [_BELOW**n / _ABOVE**n for n in range(-LOWEST, 0, -1)]
    return [*down, *up]


@cache
def _bounds_array_s() -> FloatArray:
    return np.array(_bounds_s())


def bin_of(value_s: float) -> int | None:
    """The bin of a duration, or None if it is negative, NaN or beyond the grid."""
    bounds_s = _bounds_s()
    # `not` also rejects NaN, because every comparison with NaN is false.
    if not 0 <= value_s <= bounds_s[-1]:
        return None
    return LOWEST + bisect_left(bounds_s, value_s)


def bins_of(values_s: FloatArray) -> IntArray:
    """The bins of durations, which must all lie within the grid."""
    return LOWEST + np.searchsorted(_bounds_array_s(), values_s)


def bins_within(values_s: FloatArray) -> tuple[IntArray, IntArray]:
    """The bins of the values within the grid, and the indices of these values."""
    (places,) = np.nonzero((values_s >= 0) & (values_s <= _bounds_s()[-1]))
    return bins_of(values_s[places]), places


def estimate_s(bin_: int) -> float:
    """The estimate for all durations of a bin, 2γ^b/(γ + 1). It is within 1 % of each of them."""
    return 0.0 if bin_ == LOWEST else _bounds_s()[bin_ - LOWEST] * (_BELOW / 100)


def quantile_s(counts: Mapping[int, int], q: float) -> float | None:
    """The quantile in seconds, within 1 % of the duration at the nearest rank, or None if there are
    no durations.

    Args:
        counts: for each bin, the number of durations, at least 0.
        q: in (0, 1).

    Raises:
        ValueError: q is outside (0, 1).
    """
    found = quantiles_s(counts, (q,))
    return found[0] if found else None


def quantiles_s(counts: Mapping[int, int], qs: Iterable[float]) -> list[float]:
    """Several quantiles in the order of `qs`, or an empty list without durations."""
    ordered = sorted(counts)
    # Lists are used, because they are three times as fast as numpy for a few hundred bins.
    cumulative = list(accumulate(map(counts.__getitem__, ordered)))
    number = cumulative[-1] if ordered else 0
    ranks = [nearest_rank(number, q) for q in qs]
    if number == 0:
        return []
    return [estimate_s(ordered[bisect_left(cumulative, rank)]) for rank in ranks]


@dataclass(slots=True)
class Sketch:
    """A sketch of a set of durations, with their sum.

    `sum_ns` is an integer, because a sum of floats would depend on their order. Values that are not
    durations are counted only in `negative` and `unusable`.
    """

    counts: dict[int, int] = field(default_factory=dict)
    sum_ns: int = 0
    min_s: float | None = None
    max_s: float | None = None
    negative: int = 0
    unusable: int = 0
    """The number of values that are NaN, infinite or beyond the grid."""

    @property
    def number(self) -> int:
        """The number of durations."""
        return sum(self.counts.values())

    def quantile_s(self, q: float) -> float | None:
        """Like the function `quantile_s`."""
        return quantile_s(self.counts, q)

    def add(self, value_s: float) -> None:
        """Add a duration."""
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
        # `_widen` is inlined, because this code runs for every received request.
        if self.min_s is None or value_s < self.min_s:
            self.min_s = value_s
        if self.max_s is None or value_s > self.max_s:
            self.max_s = value_s

    def add_column(self, values_s: FloatArray) -> None:
        """Add many durations: (n,), without NaN."""
        below = values_s < 0
        good = (values_s >= 0) & (values_s <= _bounds_s()[-1])
        self.negative += int(np.count_nonzero(below))
        self.unusable += int(values_s.size - np.count_nonzero(below | good))
        values_s = values_s[good]
        if values_s.size == 0:
            return
        counts = np.bincount(bins_of(values_s) - LOWEST)
        (places,) = np.nonzero(counts)
        added = zip((places + LOWEST).tolist(), counts[places].tolist(), strict=True)
        self._add_counts(added)
        # Sum high and low bits separately, because ten very long durations would overflow 64 bits.
        upper, lower = np.divmod(np.rint(values_s * 1e9).astype(np.int64), 1 << 31)
        self.sum_ns += (int(upper.sum()) << 31) + int(lower.sum())
        self._widen(float(values_s.min()), float(values_s.max()))

    def merge(self, other: "Sketch") -> None:
        """Add the durations of another sketch."""
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
