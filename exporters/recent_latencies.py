"""Latencies of the last five minutes, in bins: by model and replica, model, and tenant.

A window is the sum of slices of 15 s. It is kept as it slides: what falls out is taken off
again, so that a scrape adds nothing up. A request counts in the slice that it ended in; one
that ended before the window (a replay, a sender that was cut off) is nobody's present.

Memory: two bytes a request and latency, or six a bin where many share one, and some hundred bins
a window; how many windows there are is bounded by the caps on labels (benchmarks/scrape.py). What
has fallen silent is dropped.
"""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from exporters.bulk import Bulk, Pair
from exporters.series import RECENT, RECENT_S
from telemetry.sketches import IntArray, bins_within

SLICE_NS: Final = 15 * 10**9
SLICES: Final = RECENT_S * 10**9 // SLICE_NS
_MANY: Final = 1_000
"""Of so many requests in a slice most share their bin with another."""

Int16Array = NDArray[np.int16]
_Key = TypeVar("_Key", Pair, str)


class Counted(NamedTuple):
    """A window at one instant: its bins (`telemetry.sketches`), ascending, and the requests of
    each."""

    bins: list[int]
    numbers: dict[int, int]


Latencies = dict[str, Counted]
"""By field of `RequestTimeline`."""


class RecentCounts(NamedTuple):
    """All windows at one instant."""

    by_pair: dict[Pair, Latencies]
    by_model: dict[str, Latencies]
    by_tenant: dict[Pair, Latencies]


class _Slice:
    """The bins of some requests: one by one as long as they are few, then how often each."""

    __slots__ = ("bins", "numbers")

    def __init__(self) -> None:
        self.bins: array[int] = array("h")
        self.numbers: array[int] | None = None

    def add(self, bins: Int16Array) -> None:
        if self.numbers is not None:
            self._pack(np.append(self.bins, bins), np.append(self.numbers, np.ones(bins.size, int)))
            return
        self.bins.frombytes(bins.tobytes())
        if len(self.bins) > _MANY:
            self._pack(np.array(self.bins), np.ones(len(self.bins), int))

    def counts(self) -> Counter[int]:
        """Requests by bin."""
        if self.numbers is None:
            return Counter(self.bins)
        return Counter(dict(zip(self.bins, self.numbers, strict=True)))

    def _pack(self, bins: IntArray, numbers: IntArray) -> None:
        low = int(bins.min())
        held = np.bincount(bins.astype(int) - low, numbers)
        (places,) = np.nonzero(held)
        self.bins = array("h", (places + low).tolist())
        self.numbers = array("i", held[places].astype(int).tolist())


class SlidingCounts:
    """The requests of the last slices, by bin."""

    __slots__ = ("_ordered", "_slices", "oldest", "total")

    def __init__(self) -> None:
        self.total: Counter[int] = Counter()
        # The bins of it, ascending: a scrape would sort them anew for every window.
        self._ordered: list[int] = []
        self._slices: dict[int, _Slice] = {}
        self.oldest = 0

    def add(self, bins: Int16Array, slice_: int) -> None:
        """Count requests by their bins; slices are numbered since the epoch."""
        held = self._slices.get(slice_)
        if held is None:
            held = self._slices[slice_] = _Slice()
        held.add(bins)
        self.total.update(bins.tolist())
        if len(self.total) != len(self._ordered):
            self._ordered = sorted(self.total)

    def copy(self) -> Counted:
        """As of now."""
        return Counted(self._ordered[:], dict(self.total))

    def slide(self, oldest: int) -> None:
        """Forget the slices before this one."""
        if oldest <= self.oldest:
            return
        self.oldest = oldest
        gone = [each for each in self._slices if each < oldest]
        for slice_ in gone:
            for bin_, number in self._slices.pop(slice_).counts().items():
                self.total[bin_] -= number
                if not self.total[bin_]:
                    del self.total[bin_]
        if gone:
            self._ordered = sorted(self.total)


class RecentLatencies:
    """The windows of every pair, every model and every tenant of a model.

    Has no clock: it is told the present.
    """

    def __init__(self) -> None:
        self._by_pair: dict[Pair, dict[str, SlidingCounts]] = {}
        self._by_model: dict[str, dict[str, SlidingCounts]] = {}
        self._by_tenant: dict[Pair, dict[str, SlidingCounts]] = {}
        self._swept = 0

    def add(self, bulk: Bulk) -> None:
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
            meant = counted & streamed if of.streamed_only else counted
            if of.answered_only:
                meant = meant & bulk.answered
            bins, rows = bins_within(bulk.numbers(of.field, meant))
            found = _Found(of.field, bins.astype(np.int16), ended[rows], oldest)
            pairs, customers = bulk.pairs.place[rows], bulk.customers.place[rows]
            _take(self._by_pair, bulk.pairs.labels, pairs, found)
            _take(self._by_model, models, pairs, found)
            _take(self._by_tenant, bulk.customers.labels, customers, found)

    def counts(self, now_unix_ns: int) -> RecentCounts:
        """As of now; what has fallen silent is not there."""
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
    """The bins of one latency, and the slices that they count in."""

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
    """Count bins in the windows of their labels."""
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
        if not any(window.total for window in windows.values()):
            del by_key[key]


def _copies(by_key: Mapping[_Key, Mapping[str, SlidingCounts]]) -> dict[_Key, Latencies]:
    return {
        key: {name: window.copy() for name, window in windows.items()}
        for key, windows in by_key.items()
    }
