"""Latencies of the last five minutes, in bins: by model and replica, model, and tenant.

A window is the sum of slices of 15 s. It is kept as it slides: what falls out is taken off
again, so that a scrape adds nothing up. A request counts in the slice that it ended in; one
that ended before the window (a replay, a sender that was cut off) is nobody's present.

Memory: two bytes a request and latency, and some hundred bins a window; how many windows there
are is bounded by the caps on labels (benchmarks/scrape.py). What has fallen silent is dropped.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from exporters.requests import Pair
from exporters.series import RECENT, RECENT_S
from telemetry.requests import Outcome, RequestTimeline
from telemetry.sketches import bin_of

SLICE_NS: Final = 15 * 10**9
SLICES: Final = RECENT_S * 10**9 // SLICE_NS

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


class SlidingCounts:
    """The requests of the last slices, by bin."""

    __slots__ = ("_ordered", "_slices", "oldest", "total")

    def __init__(self) -> None:
        self.total: dict[int, int] = {}
        # The bins of it, ascending: a scrape would sort them anew for every window.
        self._ordered: list[int] = []
        # Every request's bin: of a few requests in 15 s hardly two share one.
        self._slices: dict[int, array[int]] = {}
        self.oldest = 0

    def add(self, bin_: int, slice_: int) -> None:
        """Count one; slices are numbered since the epoch."""
        held = self._slices.get(slice_)
        if held is None:
            held = self._slices[slice_] = array("h")
        held.append(bin_)
        number = self.total.get(bin_)
        if number is None:
            insort(self._ordered, bin_)
            number = 0
        self.total[bin_] = number + 1

    def copy(self) -> Counted:
        """As of now."""
        return Counted(self._ordered[:], dict(self.total))

    def slide(self, oldest: int) -> None:
        """Forget the slices before this one."""
        if oldest <= self.oldest:
            return
        self.oldest = oldest
        for slice_ in [each for each in self._slices if each < oldest]:
            for bin_ in self._slices.pop(slice_):
                self.total[bin_] -= 1
                if not self.total[bin_]:
                    del self.total[bin_]
                    del self._ordered[bisect_left(self._ordered, bin_)]


class RecentLatencies:
    """The windows of every pair, every model and every tenant of a model.

    Has no clock: it is told the present.
    """

    def __init__(self) -> None:
        self._by_pair: dict[Pair, dict[str, SlidingCounts]] = {}
        self._by_model: dict[str, dict[str, SlidingCounts]] = {}
        self._by_tenant: dict[Pair, dict[str, SlidingCounts]] = {}
        self._swept = 0

    def add(
        self, pair: Pair, request: RequestTimeline, now_unix_ns: int, tenant: Pair | None = None
    ) -> None:
        """Count one request; `tenant` is its model and tenant."""
        if request.outcome is Outcome.REJECTED:
            return
        now = now_unix_ns // SLICE_NS
        oldest = now - SLICES + 1
        if now - self._swept >= SLICES:
            self._sweep(now)
        ended = min(now, (request.received_unix_ns + round(request.e2e_s * 1e9)) // SLICE_NS)
        if ended < oldest:
            return
        # Written out: this is the path of every request as it comes in.
        all_ = [self._by_pair.setdefault(pair, {}), self._by_model.setdefault(pair[0], {})]
        if tenant is not None:
            all_.append(self._by_tenant.setdefault(tenant, {}))
        unanswered, unstreamed = not request.outcome.answered, request.streamed is False
        for of in RECENT:
            if (unanswered and of.answered_only) or (unstreamed and of.streamed_only):
                continue
            value_s: float | None = getattr(request, of.field)
            bin_ = None if value_s is None else bin_of(value_s)
            if bin_ is None:
                continue
            for windows in all_:
                window = windows.get(of.field)
                if window is None:
                    window = windows[of.field] = SlidingCounts()
                if window.oldest < oldest:
                    window.slide(oldest)
                window.add(bin_, ended)

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
