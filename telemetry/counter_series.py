"""Compute how much the counters of engines and GPUs increased between samples.

Pure. A counter is a total since the start of a process. A series consists of the samples of one
engine or GPU from one process with one start time. The increase in a time range is the sum of the
increases between neighbouring samples of a series, so no increase is computed across a restart. If
a counter decreases within a series, it was reset, and the increase is unknown.

Here, a span is not a trace span: it consists of the first and the last sample of a series in a
minute or an hour. If these are the same sample, the span has the length 0.
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
    """Return the series of each of the n rows, as an array (n,) of series numbers from 0. Rows with
    equal values in all columns belong to the same series."""
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
    """n samples or n spans, sorted by series and time.

    Attributes:
        order: (n,) the index of each sample or span in the original columns.
        first_unix_ns: (n,) when each sample or span starts.
        last_unix_ns: (n,) when each sample or span ends.
        follows: (n,) whether each sample or span has a previous neighbour: the one before it is in
            the same series, and the gap between the two is not longer than allowed.
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
            longest_gap_s: maximum gap between two neighbours, or None for no limit.
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
        """Return, for each sample, the increase of a counter since the sample before it.

        Args:
            values: (n,) the counter in each sample, in the order of the columns; NaN if unknown.

        Returns:
            (n,) in the order of the columns. NaN if a sample has no previous neighbour, or if the
            counter was reset between the two.
        """
        ordered = values[self.order]
        with np.errstate(invalid="ignore"):
            rise = np.diff(ordered, prepend=np.nan)
            rise[~(self.follows & (rise >= 0))] = np.nan
        return self._as_given(rise)

    @cached_property
    def apart_s(self) -> FloatArray:
        """Return, for each sample or span, the seconds since its previous neighbour ended.

        The result is (n,), in the order of the columns. NaN if there is no previous neighbour.
        """
        apart = np.full(self.order.size, np.nan)
        apart[1:] = (self.first_unix_ns[1:] - self.last_unix_ns[:-1]) / _NS
        apart[~self.follows] = np.nan
        return self._as_given(apart)

    def intervals(self) -> "Intervals":
        """Return all spans, followed by the intervals between neighbouring spans."""
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
    """The n spans of a `CounterSeries`, followed by the m intervals between them. A span is a part
    of a counter's series, and an interval lies between two successive spans of one series.

    Attributes:
        order: (n,) the index of each span in the original columns.
        next_positions: (m,) for each interval, the position in `order` of the span after it.
        start_unix_ns: (n + m,) when each span starts, then when each interval starts.
        end_unix_ns: (n + m,) when each span ends, then when each interval ends.
    """

    order: IntArray
    next_positions: IntArray
    start_unix_ns: IntArray
    end_unix_ns: IntArray

    def begun_by(self) -> IntArray:
        """Return indices in the columns: first the index of each span, then, for each interval, the
        index of the span before it."""
        return np.concatenate([self.order, self.order[self.next_positions - 1]])

    def differences(self, first: FloatArray, last: FloatArray) -> FloatArray:
        """Return the increase of a counter in each span and each interval.

        Args:
            first: (n,) the counter at the start of each span, in the order of the columns.
            last: (n,) the counter at the end of each span.

        Returns:
            (n + m,): NaN if a value is unknown, and a negative number if the counter was reset.
        """
        first, last = first[self.order], last[self.order]
        across = first[self.next_positions] - last[self.next_positions - 1]
        return np.concatenate([last - first, across])
