"""Aggregate samples of an engine and its GPUs in time windows. Pure.

The increase of a counter between two samples belongs to the window of the later sample.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from roofline.load import FloatArray, IntArray
from telemetry.counter_series import CounterSeries, series_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Samples in any order, as columns of shape (n,). Unknown values are NaN.

    The keys of `numbers` are the fields of `EngineSample` or `GpuSample`. `series` identifies the
    process that counted a sample's totals. A restarted process has a new number. For GPUs, `series`
    may be empty.
    """

    at_unix_ns: IntArray
    numbers: Mapping[str, FloatArray]
    series: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def number(self, name: str) -> FloatArray:
        """A column. All its values are NaN if no sample reports it."""
        found = self.numbers.get(name)
        return np.full(self.at_unix_ns.size, np.nan) if found is None else found


@dataclass(frozen=True, slots=True)
class Grid:
    """Consecutive time windows of equal width."""

    from_unix_ns: int
    width_ns: int
    number: int

    def of(self, at_unix_ns: IntArray) -> IntArray:
        """The index of each instant's window: (n,).

        The index is −1 outside all windows."""
        places = (at_unix_ns - self.from_unix_ns) // self.width_ns
        return np.where((places >= 0) & (places < self.number), places, -1)

    def start_unix_ns(self, window: int) -> int:
        """The start of the window with this index."""
        return self.from_unix_ns + window * self.width_ns


def grid_of(at_unix_ns: IntArray, width_s: float | None) -> Grid:
    """Return windows that cover all instants and begin at multiples of their width.

    If the width is None, return a single window.

    Raises:
        ValueError: the width is 0 or less.
    """
    if width_s is not None and not width_s > 0:
        raise ValueError(f"width_s: {width_s}; allowed: more than 0, or None")
    if not at_unix_ns.size:
        return Grid(0, 1, 0)
    first, last = int(at_unix_ns.min()), int(at_unix_ns.max())
    if width_s is None:
        return Grid(first, last - first + 1, 1)
    width_ns = max(1, round(width_s * 1e9))
    begin = first // width_ns
    return Grid(begin * width_ns, width_ns, last // width_ns - begin + 1)


class Rises:
    """The increases of totals between samples, summed in w time windows."""

    def __init__(self, samples: Columns, grid: Grid) -> None:
        self._samples, self._number = samples, grid.number
        self._counters = CounterSeries.of(samples.series, samples.at_unix_ns)
        self._windows = grid.of(samples.at_unix_ns)

    def of(self, name: str) -> FloatArray:
        """A total's increase in each window, over all processes: (w,). The increase is NaN if no
        sample reports the total."""
        rise = self._increases(name)
        return self._summed(rise, np.isfinite(rise))

    def combined(self, names: Sequence[str], make: Callable[..., FloatArray]) -> FloatArray:
        """Apply `make` to the increases of totals between samples, and sum the results in each
        window: (w,). The sum is NaN if no sample of the window reports all of these totals."""
        rises = [self._increases(name) for name in names]
        known = np.logical_and.reduce([np.isfinite(rise) for rise in rises])
        return self._summed(make(*(np.where(known, rise, 0.0) for rise in rises)), known)

    def _increases(self, name: str) -> FloatArray:
        return self._counters.rises(self._samples.number(name))

    def covered_s(self) -> FloatArray:
        """The seconds of each window that its samples cover: (w,).

        A sample covers the time since the previous sample of its process. If an engine has several
        processes, only the process that covers the most seconds is counted.
        """
        span = self._counters.apart_s
        most = np.zeros(self._number)
        valid = np.isfinite(span) & (self._windows >= 0)
        rank = series_numbers(self._samples.series)[valid]
        key, which = np.unique(rank * self._number + self._windows[valid], return_inverse=True)
        np.maximum.at(most, key % self._number, np.bincount(which, weights=span[valid]))
        return most

    def _summed(
        self, values: FloatArray, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> FloatArray:
        valid = chosen & (self._windows >= 0)
        where = self._windows[valid]
        sums = np.bincount(where, weights=values[valid], minlength=self._number)
        there = np.bincount(where, minlength=self._number) > 0
        return np.where(there, sums, np.nan)


def means(samples: Columns, name: str, grid: Grid) -> FloatArray:
    """A gauge's mean in each window, over all samples of all GPUs: (w,). NaN if there are no
    samples."""
    values, windows = samples.number(name), grid.of(samples.at_unix_ns)
    valid = np.isfinite(values) & (windows >= 0)
    sums = np.bincount(windows[valid], weights=values[valid], minlength=grid.number)
    counts = np.bincount(windows[valid], minlength=grid.number)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
