"""The cells that latencies are counted in, of which buckets of both kinds are made.

A classic histogram has bounds of its own; a native one has eight buckets to each doubling,
wherever its values are. A latency is counted once, in the finest division that both are unions
of, so that two kinds of buckets cost what one does. Some 200 cells a histogram, whatever comes:

    at most the zero threshold | 8 to each doubling, cut at the classic bounds | what is beyond

The zero threshold is the power of two under the first classic bound, and the native buckets end
at the one over the last: there, as in a classic histogram, nothing is told apart any more.

Source: Prometheus, "Native histograms" specification, standard schemas.
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
"""Of one native bucket's bound to the next: 1.09, so that a value is known within 9 %."""


class Cells(NamedTuple):
    """The cells of one histogram. A value on a bound belongs below it."""

    bounds_s: tuple[float, ...]
    """Ascending; there is one more cell, of what is beyond the last."""
    buckets: tuple[int, ...]
    """Of each cell, its classic bucket."""
    ends: IntArray
    """(classic buckets,) the last cell of each."""
    begins: IntArray
    """(1 + native buckets,) the first cell of the zero bucket, and of each native one."""
    zero_threshold_s: float
    first: int
    """The index of the first native bucket: bucket i ends at 2^(i/8) s."""

    def of_column(self, values_s: FloatArray) -> IntArray:
        """The cells of many: (n,)."""
        return np.searchsorted(self.bounds_s, values_s)

    def none(self) -> "array[int]":
        """Counts of which none has come yet."""
        return array("q", bytes(8 * len(self.buckets)))

    def cumulative(self, counts: IntArray) -> IntArray:
        """Classic buckets: (n, cells) → (n, buckets), each with all below it; the last is all."""
        summed: IntArray = np.cumsum(counts, axis=1)[:, self.ends]
        return summed

    def native(self, counts: IntArray) -> IntArray:
        """The zero bucket, and the native ones: (n, cells) → (n, 1 + buckets)."""
        summed: IntArray = np.add.reduceat(counts, self.begins, axis=1)
        return summed


@lru_cache(maxsize=64)
def cells(bounds_s: tuple[float, ...]) -> Cells:
    """The cells of a histogram.

    Args:
        bounds_s: the classic ones, ascending, all above 0.
    """
    lowest, highest = floor(log2(bounds_s[0])), ceil(log2(bounds_s[-1]))
    first = lowest * _A_DOUBLING
    native = [2 ** (index / _A_DOUBLING) for index in range(first, highest * _A_DOUBLING + 1)]
    all_ = sorted({*bounds_s, *native})
    places = {bound: place for place, bound in enumerate(all_)}
    return Cells(
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
