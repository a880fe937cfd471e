"""Count the latencies of the last five minutes in bins (`telemetry.sketches`), for each replica,
model and tenant.

A window consists of slices of 15 s and their total. The oldest slices are subtracted from the
total. A request is counted in the slice in which it ended. A slice stores the bin of each request
and latency in two bytes. If it has many requests, it stores each distinct bin with its count
instead: a few hundred entries of six bytes.
"""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from exporters.definitions.series import RECENT, RECENT_S
from exporters.totals.request_batch import Pair, RequestBatch
from telemetry.sketches import IntArray, bins_within

SLICE_NS: Final = 15 * 10**9
SLICES: Final = RECENT_S * 10**9 // SLICE_NS
_MANY: Final = 1_000
"""Number of requests in a slice above which counts per bin take less memory than a bin per
request."""

Int16Array = NDArray[np.int16]
_Key = TypeVar("_Key", Pair, str)


class Counted(NamedTuple):
    """A copy of a window: its bins in ascending order, and their counts."""

    bins: list[int]
    numbers: dict[int, int]


Latencies = dict[str, Counted]


class RecentCounts(NamedTuple):
    """A copy of all windows."""

    by_pair: dict[Pair, Latencies]
    by_model: dict[str, Latencies]
    by_tenant: dict[Pair, Latencies]


class _Slice:
    """The number of requests in each bin. New requests wait in a list until they are counted."""

    __slots__ = ("_bins", "_fresh", "_numbers")

    def __init__(self) -> None:
        self._bins: array[int] = array("h")
        self._numbers: array[int] = array("i")
        self._fresh: array[int] = array("h")

    def add(self, bins: Int16Array) -> None:
        self._fresh.frombytes(bins.tobytes())
        if len(self._fresh) > _MANY:
            self._pack()

    def counts(self) -> Counter[int]:
        counts = Counter(dict(zip(self._bins, self._numbers, strict=True)))
        counts.update(self._fresh)
        return counts

    def _pack(self) -> None:
        bins, numbers = _distinct_with_counts(self._fresh)
        bins, places = np.unique(np.append(self._bins, bins), return_inverse=True)
        numbers = np.bincount(places, np.append(self._numbers, numbers))
        self._bins = array("h", bins.tolist())
        self._numbers = array("i", numbers.astype(int).tolist())
        self._fresh = array("h")


class SlidingCounts:
    """The number of requests in each bin, over the slices of the window."""

    __slots__ = ("_fresh", "_ordered", "_slices", "_total", "oldest")

    def __init__(self) -> None:
        self._total: Counter[int] = Counter()
        self._fresh: array[int] = array("h")
        """Bins that are not yet in `_total`. Adding a thousand bins at once takes a tenth of the
        time."""
        # The bins of `_total` in ascending order.
        self._ordered: list[int] = []
        self._slices: dict[int, _Slice] = {}
        self.oldest = 0

    def add(self, bins: Int16Array, slice_: int) -> None:
        """Count requests by their bins. Slices are numbered since the epoch."""
        counts = self._slices.get(slice_)
        if counts is None:
            counts = self._slices[slice_] = _Slice()
        counts.add(bins)
        self._fresh.frombytes(bins.tobytes())
        if len(self._fresh) > _MANY:
            self._settle()

    def __bool__(self) -> bool:
        return bool(self._fresh or self._total)

    def copy(self) -> Counted:
        """Return a copy of the current counts."""
        self._settle()
        return Counted(self._ordered[:], dict(self._total))

    def slide(self, oldest: int) -> None:
        """Drop the slices before `oldest`. Also drop the slices after the window, which were added
        while the clock was ahead."""
        if oldest == self.oldest:
            return
        self.oldest = oldest
        gone = [each for each in self._slices if not oldest <= each < oldest + SLICES]
        if not gone:
            return
        self._settle()
        for slice_ in gone:
            for bin_, number in self._slices.pop(slice_).counts().items():
                self._total[bin_] -= number
                if not self._total[bin_]:
                    del self._total[bin_]
        self._ordered = sorted(self._total)

    def _settle(self) -> None:
        if not self._fresh:
            return
        bins, numbers = _distinct_with_counts(self._fresh)
        self._fresh = array("h")
        for bin_, number in zip(bins.tolist(), numbers.tolist(), strict=True):
            self._total[bin_] += number
        if len(self._total) != len(self._ordered):
            self._ordered = sorted(self._total)


def _distinct_with_counts(several: "array[int]") -> tuple[IntArray, IntArray]:
    bins, numbers = np.unique(np.frombuffer(several, np.int16), return_counts=True)
    return bins.astype(int), numbers.astype(int)


class RecentLatencies:
    """The windows of the last minutes: for each model and replica, each model, and each model and
    tenant."""

    def __init__(self) -> None:
        self._by_pair: dict[Pair, dict[str, SlidingCounts]] = {}
        self._by_model: dict[str, dict[str, SlidingCounts]] = {}
        self._by_tenant: dict[Pair, dict[str, SlidingCounts]] = {}
        self._swept = 0

    def add(self, bulk: RequestBatch) -> None:
        """Count requests."""
        now = bulk.now_unix_ns // SLICE_NS
        oldest = now - SLICES + 1
        if now - self._swept >= SLICES:
            self._sweep(now)
        ended = np.minimum(now, bulk.ended_unix_ns // SLICE_NS)
        counted = bulk.served & (ended >= oldest)
        models = [model for model, _ in bulk.pairs.labels]
        streamed = np.array([each is not False for each in bulk.rows.column("streamed")], bool)
        for of in RECENT:
            selected = counted & streamed if of.streamed_only else counted
            if of.answered_only:
                selected = selected & bulk.answered
            bins, rows = bins_within(bulk.numbers(of.field, selected))
            found = _Found(of.field, bins.astype(np.int16), ended[rows], oldest)
            pairs, tenant_pairs = bulk.pairs.place[rows], bulk.tenant_pairs.place[rows]
            _take(self._by_pair, bulk.pairs.labels, pairs, found)
            _take(self._by_model, models, pairs, found)
            _take(self._by_tenant, bulk.tenant_pairs.labels, tenant_pairs, found)

    def counts(self, now_unix_ns: int) -> RecentCounts:
        """A copy of the current windows that are not empty."""
        self._sweep(now_unix_ns // SLICE_NS)
        return RecentCounts(
            _copies(self._by_pair), _copies(self._by_model), _copies(self._by_tenant)
        )

    def _sweep(self, now: int) -> None:
        self._swept = now
        _drop_silent(self._by_pair, now - SLICES + 1)
        _drop_silent(self._by_model, now - SLICES + 1)
        _drop_silent(self._by_tenant, now - SLICES + 1)


class _Found(NamedTuple):
    """The bin of one latency for some requests, and the slice in which each request ended."""

    field: str
    bins: Int16Array
    slices: IntArray
    oldest: int


def _take(
    by_key: dict[_Key, dict[str, SlidingCounts]],
    labels: Sequence[_Key],
    place: IntArray,
    found: _Found,
) -> None:
    key = place * SLICES + found.slices % SLICES
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    firsts = order[starts]
    parts = np.split(found.bins[order], starts[1:]) if starts.size else []
    ats, slices = place[firsts].tolist(), found.slices[firsts].tolist()
    for at, slice_, bins in zip(ats, slices, parts, strict=True):
        windows = by_key.setdefault(labels[at], {})
        window = windows.get(found.field)
        if window is None:
            window = windows[found.field] = SlidingCounts()
        window.slide(found.oldest)
        window.add(bins, slice_)


def _drop_silent(by_key: dict[_Key, dict[str, SlidingCounts]], oldest: int) -> None:
    for key, windows in list(by_key.items()):
        for window in windows.values():
            window.slide(oldest)
        if not any(windows.values()):
            del by_key[key]


def _copies(by_key: Mapping[_Key, Mapping[str, SlidingCounts]]) -> dict[_Key, Latencies]:
    return {
        key: {name: window.copy() for name, window in windows.items()}
        for key, windows in by_key.items()
    }
