"""Counters of engines and GPUs: how much each rose between neighbouring samples.

Pure. A counter is reported as its total since a start, so it belongs to a series: one engine or GPU
of a replica, one process, one start. What happened in a stretch of time is the sum of the rises
between neighbours of one series. A restart begins a new series, so no rise spans it. A counter that
falls within a series was reset: that rise is unknown.

A span is what samples of one series reported first and last in a minute or an hour. A sample is a
span of one instant.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_NS: Final = 10**9
_WIDE: Final = 2**31
"""Two numbers below it make one of 64 bits."""


def series_numbers(*columns: IntArray) -> IntArray:
    """(n,) a number from 0 for each distinct combination of the columns' values."""
    numbers = np.zeros(columns[0].size, dtype=np.int64)
    for column in columns if numbers.size else ():
        least, greatest = int(column.min()), int(column.max())
        if greatest - least >= _WIDE:
            codes = np.unique(column, return_inverse=True)[1].reshape(-1)
        else:
            codes = column - least
        keys = numbers * (int(codes.max()) + 1) + codes
        numbers = np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbers


@dataclass(frozen=True)
class CounterSeries:
    """Samples or spans in the order of their series, then of time.

    Attributes:
        order: (n,) the place of each in the columns that it was made from.
        first_unix_ns: (n,) when each begins, in this order.
        last_unix_ns: (n,) when each ends.
        follows: (n,) whether the one before it is its neighbour: of the same series, and not
            further away than the longest gap.
    """

    order: IntArray
    first_unix_ns: IntArray
    last_unix_ns: IntArray
    follows: BoolArray

    @classmethod
    def of(
        cls,
        series: IntArray,
        first_unix_ns: IntArray,
        last_unix_ns: IntArray | None = None,
        longest_gap_s: int | None = None,
    ) -> "CounterSeries":
        """Order samples or spans.

        Args:
            series: (n,) a number for each series.
            first_unix_ns: (n,) when each begins.
            last_unix_ns: (n,) when each ends; None for samples.
            longest_gap_s: between two neighbours; None for no limit.
        """
        order = np.lexsort((first_unix_ns, series))
        first_ns, ordered = first_unix_ns[order], series[order]
        last_ns = first_ns if last_unix_ns is None else last_unix_ns[order]
        follows = np.zeros(order.size, dtype=np.bool_)
        follows[1:] = ordered[1:] == ordered[:-1]
        if longest_gap_s is not None:
            follows[1:] &= first_ns[1:] - last_ns[:-1] <= longest_gap_s * _NS
        return cls(order, first_ns, last_ns, follows)

    def rises(self, values: FloatArray) -> FloatArray:
        """Return by how much a counter rose since the sample before.

        Args:
            values: (n,) the counter, as the columns have it; NaN where it is not reported.

        Returns:
            (n,) in the order of the columns; NaN without a neighbour, and where it fell.
        """
        ordered = values[self.order]
        with np.errstate(invalid="ignore"):
            rise = np.diff(ordered, prepend=np.nan)
            rise[~(self.follows & (rise >= 0))] = np.nan
        return self._as_given(rise)

    @cached_property
    def apart_s(self) -> FloatArray:
        """(n,) seconds since the sample before, in the order of the columns; NaN without one."""
        apart = np.full(self.order.size, np.nan)
        apart[1:] = (self.first_unix_ns[1:] - self.last_unix_ns[:-1]) / _NS
        apart[~self.follows] = np.nan
        return self._as_given(apart)

    def intervals(self) -> "Intervals":
        """Return each span, and then each interval between a span and its next neighbour."""
        next_places = np.flatnonzero(self.follows)
        return Intervals(
            self.order,
            next_places,
            np.concatenate([self.first_unix_ns, self.last_unix_ns[next_places - 1]]),
            np.concatenate([self.last_unix_ns, self.first_unix_ns[next_places]]),
        )

    def _as_given(self, ordered: FloatArray) -> FloatArray:
        given = np.empty_like(ordered)
        given[self.order] = ordered
        return given


@dataclass(frozen=True, slots=True)
class Intervals:
    """The n spans of series in order, then the m intervals between neighbours.

    Attributes:
        order: (n,) as of `CounterSeries`.
        next_places: (m,) the place, in that order, of the span that ends each interval.
        start_unix_ns: (n + m,) when each begins.
        end_unix_ns: (n + m,) when each ends.
    """

    order: IntArray
    next_places: IntArray
    start_unix_ns: IntArray
    end_unix_ns: IntArray

    def begun_by(self) -> IntArray:
        """(n + m,) the place in the columns of the span that each is, or begins with."""
        return np.concatenate([self.order, self.order[self.next_places - 1]])

    def differences(self, first: FloatArray, last: FloatArray) -> FloatArray:
        """Return what a counter was at the end of each less what it was at the beginning.

        Args:
            first: (n,) the counter when each span begins, as the columns have it.
            last: (n,) the counter when each span ends.

        Returns:
            (n + m,); NaN where it is not reported, below 0 where it was reset.
        """
        first, last = first[self.order], last[self.order]
        across = first[self.next_places] - last[self.next_places - 1]
        return np.concatenate([last - first, across])
