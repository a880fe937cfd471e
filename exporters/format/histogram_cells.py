"""Divide latencies into cells, and compute classic and native histogram buckets from the counts of
the cells.

A classic histogram has configured bounds. A native histogram has eight buckets per factor of two.
The bounds of the two histograms together divide the latencies into about 200 cells. Each bucket is
a sum of cells:

    1 cell up to the zero threshold | 8 cells per doubling, divided at classic bounds | 1 cell above

The native buckets begin at the zero threshold, which is the power of two below the first classic
bound. The native buckets end at the power of two above the last classic bound. Source: Prometheus,
"Native histograms" specification, standard schemas.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from math import ceil, floor, log2
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SCHEMA: Final = 3
_A_DOUBLING: Final = 2**SCHEMA
GROWTH: Final = 2 ** (1 / _A_DOUBLING)
"""Ratio of each native bound to the previous bound: 1.09."""


class HistogramCells(NamedTuple):
    """The cells of one histogram. A value that equals a bound belongs to the cell below it."""

    bounds_s: tuple[float, ...]
    """The upper bounds of the cells, ascending. The last cell has no bound. It contains the values
    above the last bound."""
    buckets: tuple[int, ...]
    """The index of the classic bucket of each cell."""
    ends: IntArray
    """(b,) the index of the last cell of each of the b classic buckets."""
    begins: IntArray
    """(1 + b,) the index of the first cell of the zero bucket, and of each of the b native
    buckets."""
    zero_threshold_s: float
    first: int
    """The index of the first native bucket. Bucket i ends at 2^(i/8) s."""

    def of_column(self, values_s: FloatArray) -> IntArray:
        """The index of each value's cell: (n,)."""
        return np.searchsorted(self.bounds_s, values_s)

    def none(self) -> "array[int]":
        """Zeros, one per cell."""
        return array("q", bytes(8 * len(self.buckets)))

    def cumulative(self, counts: IntArray) -> IntArray:
        """Convert counts of cells (n, cells) to cumulative counts of classic buckets (n, buckets).
        The last bucket is the total."""
        summed: IntArray = np.cumsum(counts, axis=1)[:, self.ends]
        return summed

    def native(self, counts: IntArray) -> IntArray:
        """Convert counts of cells (n, cells) to the zero bucket and the native buckets (n, 1 +
        buckets)."""
        summed: IntArray = np.add.reduceat(counts, self.begins, axis=1)
        return summed


@lru_cache(maxsize=64)
def cells(bounds_s: tuple[float, ...]) -> HistogramCells:
    """The cells for a histogram with these classic bounds.

    Args:
        bounds_s: the bounds in ascending order, all above 0.
    """
    lowest, highest = floor(log2(bounds_s[0])), ceil(log2(bounds_s[-1]))
    first = lowest * _A_DOUBLING
    native = [2 ** (index / _A_DOUBLING) for index in range(first, highest * _A_DOUBLING + 1)]
    all_ = sorted({*bounds_s, *native})
    places = {bound: place for place, bound in enumerate(all_)}
    return HistogramCells(
        tuple(all_),
        (*(bisect_left(bounds_s, bound) for bound in all_), len(bounds_s)),
        np.array([*(places[bound] for bound in bounds_s), len(all_)]),
        np.array([0, *(places[bound] + 1 for bound in native)]),
        native[0],
        first + 1,
    )


def matrix(counts: Iterable["array[int]"]) -> IntArray:
    """The counts of several histograms with the same cells: (n, cells)."""
    rows = list(counts)
    return np.frombuffer(b"".join(rows), dtype=np.int64).reshape(len(rows), -1)
