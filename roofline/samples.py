"""Samples of one engine and its GPUs, as windows of time: what happened, and what was seen.

Pure. Totals become rises between neighbouring samples of the same process and start; a rise
belongs to the window in which it was told.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from roofline.load import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Samples in any order: (n,) each; NaN where unknown.

    `numbers` are by the names of `EngineSample`, or of `GpuSample`. `series` tells apart what
    a total belongs to: process and start. It may be left out for GPUs.
    """

    at_unix_ns: IntArray
    numbers: Mapping[str, FloatArray]
    series: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def number(self, name: str) -> FloatArray:
        """A column; all NaN where nobody told it."""
        found = self.numbers.get(name)
        return np.full(self.at_unix_ns.size, np.nan) if found is None else found


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows of `width_ns` from `from_unix_ns` on, `number` of them."""

    from_unix_ns: int
    width_ns: int
    number: int

    def of(self, at_unix_ns: IntArray) -> IntArray:
        """(n,) in which window each instant lies; outside: −1."""
        places = (at_unix_ns - self.from_unix_ns) // self.width_ns
        return np.where((places >= 0) & (places < self.number), places, -1)

    def start_unix_ns(self, window: int) -> int:
        """When a window begins."""
        return self.from_unix_ns + window * self.width_ns


def grid_of(at_unix_ns: IntArray, width_s: float | None) -> Grid:
    """Windows on whole multiples of their width that hold all the instants; None: one for all.

    Raises:
        ValueError: a width of 0 or less.
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
    """How totals rose from sample to sample, summed by window."""

    def __init__(self, samples: Columns, grid: Grid) -> None:
        order = np.lexsort((samples.at_unix_ns, samples.series))
        series, at = samples.series[order], samples.at_unix_ns[order]
        self._samples, self._order, self._number = samples, order, grid.number
        self._follows = np.zeros(order.size, dtype=np.bool_)
        self._follows[1:] = series[1:] == series[:-1]
        self._windows = grid.of(at)
        self._series = series
        self._at = at

    def of(self, name: str) -> FloatArray:
        """(w,) a total's rise; NaN where no sample of the window tells it.

        Several processes of an engine each saw a part: their rises add up.
        """
        rise = self._each(name)
        return self._summed(rise, np.isfinite(rise))

    def combined(self, names: Sequence[str], make: Callable[..., FloatArray]) -> FloatArray:
        """(w,) what is made of the rises of several totals from sample to sample, summed; NaN
        where no sample of the window tells them all."""
        rises = [self._each(name) for name in names]
        known = np.logical_and.reduce([np.isfinite(rise) for rise in rises])
        return self._summed(make(*(np.where(known, rise, 0.0) for rise in rises)), known)

    def _each(self, name: str) -> FloatArray:
        """(n,) the rise up to each sample, in order of series and time; NaN where it is none."""
        values = self._samples.number(name)[self._order]
        rise = np.diff(values, prepend=np.nan)
        with np.errstate(invalid="ignore"):
            return np.where(self._follows & (rise >= 0), rise, np.nan)

    def covered_s(self) -> FloatArray:
        """(w,) seconds between the samples of a window and those before them, by the process
        that has most; 0 where there are none."""
        span = np.diff(self._at, prepend=self._at[:1]) / 1e9
        most = np.zeros(self._number)
        told = self._follows & (self._windows >= 0)
        # They stand in the order of their series: each is a number, and with the window a key.
        rank = np.cumsum(~self._follows)[told]
        key, which = np.unique(rank * self._number + self._windows[told], return_inverse=True)
        np.maximum.at(most, key % self._number, np.bincount(which, weights=span[told]))
        return most

    def _summed(
        self, values: FloatArray, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> FloatArray:
        told = chosen & (self._windows >= 0)
        where = self._windows[told]
        sums = np.bincount(where, weights=values[told], minlength=self._number)
        there = np.bincount(where, minlength=self._number) > 0
        return np.where(there, sums, np.nan)


def means(samples: Columns, name: str, grid: Grid) -> FloatArray:
    """(w,) a gauge's mean over the samples of each window, of whichever GPU; NaN without any."""
    values, windows = samples.number(name), grid.of(samples.at_unix_ns)
    told = np.isfinite(values) & (windows >= 0)
    sums = np.bincount(windows[told], weights=values[told], minlength=grid.number)
    counts = np.bincount(windows[told], minlength=grid.number)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
