"""The increases of the counters of engines and GPUs between samples. Pure.

A series contains the samples of one engine or GPU from one process with one start time. No increase
is computed across a restart. If a counter decreases within a series, it was reset, and the increase
is unknown. A span is a minute or an hour of a series, with its first and its last sample.
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
"""The product of two numbers below this limit fits in 64 bits."""


def series_numbers(*columns: IntArray) -> IntArray:
    """The number of each row's series, from 0: (n,). Rows of the same series have equal values in
    all columns."""
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
    """n samples or n spans, sorted by series, then by time.

    Attributes:
        order: (n,) the indices of the sorted samples or spans in the original columns.
        first_unix_ns: (n,) when each sample or span starts.
        last_unix_ns: (n,) when each sample or span ends.
        follows: (n,) whether the sample or span before it is in the same series and within the
            allowed gap.
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
        """Sort samples or spans by series and time.

        Args:
            series: (n,) the series number of each sample or span.
            first_unix_ns: (n,) when each sample or span starts.
            last_unix_ns: (n,) when each span ends, or None for samples.
            longest_gap_s: the maximum gap between two neighbours, or None if there is no limit.
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
        """The increase of a counter since the previous sample, for each sample.

        Args:
            values: (n,) in the order of the columns. Unknown values are NaN.

        Returns:
            (n,) in the order of the columns. NaN without a previous neighbour or after a reset.
        """
        ordered = values[self.order]
        with np.errstate(invalid="ignore"):
            rise = np.diff(ordered, prepend=np.nan)
            rise[~(self.follows & (rise >= 0))] = np.nan
        return self._as_given(rise)

    @cached_property
    def apart_s(self) -> FloatArray:
        """Seconds since the previous neighbour ended: (n,), in the order of the columns. NaN
        without a previous neighbour."""
        apart = np.full(self.order.size, np.nan)
        apart[1:] = (self.first_unix_ns[1:] - self.last_unix_ns[:-1]) / _NS
        apart[~self.follows] = np.nan
        return self._as_given(apart)

    def intervals(self) -> "Intervals":
        """All spans, followed by the intervals between neighbouring spans."""
        next_positions = np.flatnonzero(self.follows)
        return Intervals(
            self.order,
            next_positions,
            np.concatenate([self.first_unix_ns, self.last_unix_ns[next_positions - 1]]),
            np.concatenate([self.last_unix_ns, self.first_unix_ns[next_positions]]),
        )

    def _as_given(self, ordered: FloatArray) -> FloatArray:
        given = np.empty_like(ordered)
        given[self.order] = ordered
        return given


@dataclass(frozen=True, slots=True)
class Intervals:
    """The n spans of a `CounterSeries`, followed by the m intervals between spans of one series.

    Attributes:
        order: (n,) the index of each span in the original columns.
        next_positions: (m,) the position in `order` of the span after each interval.
        start_unix_ns: (n + m,)
        end_unix_ns: (n + m,)
    """

    order: IntArray
    next_positions: IntArray
    start_unix_ns: IntArray
    end_unix_ns: IntArray

    def begun_by(self) -> IntArray:
        """For each span and each interval, an index into the columns: (n + m,). For a span, it is
        the span's own index. For an interval, it is the index of the span before the interval."""
        return np.concatenate([self.order, self.order[self.next_positions - 1]])

    def differences(self, first: FloatArray, last: FloatArray) -> FloatArray:
        """The increase of a counter in each span and each interval.

        Args:
            first: (n,) the counter at the start of each span, in the order of the columns.
            last: (n,) the counter at the end of each span.

        Returns:
            (n + m,). NaN if a value is unknown, and negative if the counter was reset.
        """
        first, last = first[self.order], last[self.order]
        across = first[self.next_positions] - last[self.next_positions - 1]
        return np.concatenate([last - first, across])
