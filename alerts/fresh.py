"""Counts of the newest steps, counted again only where requests have come since.

The newest ten minutes are not kept yet, for late requests may still come; to count all of them
anew every 15 s would be most of what a busy Tailspan does. Who writes the database alone hears of
each request as it is stored, and so knows which steps changed, and how far back their requests
reach. Counts are still made of the stored rows: a repeat counts once.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import Engine

from alerts.counting import (
    EVALUATION_S,
    LONGEST_REQUEST_S,
    SECOND_NS,
    SETTLED_S,
    Count,
    count_requests,
)
from alerts.objectives import Goodput
from store.slo_counts import SloCount
from telemetry.request_rows import RequestRows

REMEMBERED_S: Final = 2 * SETTLED_S
_STEP_NS: Final = EVALUATION_S * SECOND_NS
_LATEST: Final = np.iinfo(np.int64).max


class _Heard(NamedTuple):
    """Of a step's requests: how many times some came, and when the earliest was received."""

    times: int
    from_unix_ns: int


class FreshCounts:
    """Remembers counts of steps, as long as nobody else writes.

    Args:
        count: counts a stretch of the stored requests.
    """

    def __init__(self, count: Count = count_requests) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._heard: dict[int, _Heard] = {}
        self._sources: set[str] = set()
        self._heard_from_s: int | None = None
        self._known: dict[tuple[str, int], tuple[int, SloCount | None]] = {}

    def hear(self, requests: RequestRows) -> int | None:
        """Note which steps requests belong to, after their commit and from any thread.

        Returns:
            When the earliest of these steps began; None where there is no request.
        """
        received = np.array(requests.column("received_unix_ns"), np.int64)
        lasted = np.rint(requests.numbers("e2e_s") * SECOND_NS).astype(np.int64)
        ends, place = np.unique(-(-(received + lasted) // _STEP_NS), return_inverse=True)
        earliest = np.full(ends.shape, _LATEST)
        np.minimum.at(earliest, place, received)
        steps = dict(zip((ends * EVALUATION_S).tolist(), earliest.tolist(), strict=True))
        with self._lock:
            self._sources.update(requests.column("source"))
            for until_s, first in steps.items():
                before = self._heard.get(until_s, _Heard(0, first))
                self._heard[until_s] = _Heard(before.times + 1, min(before.from_unix_ns, first))
        return min(steps) - EVALUATION_S if steps else None

    def begin(self, now_s: int) -> None:
        """What ended until now was stored unheard, at least in part; called each time."""
        with self._lock:
            if self._heard_from_s is None:
                self._heard_from_s = now_s

    def count(
        self,
        engine: Engine,
        goodput: Goodput,
        from_s: int,
        to_s: int,
        bucket_s: int = EVALUATION_S,
        received_from_s: int | None = None,
        /,
    ) -> list[SloCount]:
        """As `counting.count_requests`, by steps: `to_s` is the end of one."""
        with self._lock:
            self._forget(to_s - REMEMBERED_S)
            heard, heard_from_s = dict(self._heard), self._heard_from_s
            several = len(self._sources) > 1
        # The better word on a request takes another away, in whichever step that was.
        if several or heard_from_s is None:
            return self._count(engine, goodput, from_s, to_s, EVALUATION_S)
        first_s = max(from_s // EVALUATION_S * EVALUATION_S, to_s - REMEMBERED_S)
        older = (
            self._count(engine, goodput, from_s, first_s, EVALUATION_S) if from_s < first_s else []
        )
        steps = range(first_s + EVALUATION_S, to_s + 1, EVALUATION_S)

        def times(until_s: int) -> int:
            return heard[until_s].times if until_s in heard else 0

        def is_known(until_s: int) -> bool:
            known = self._known.get((goodput.digest, until_s))
            return known is not None and known[0] == times(until_s)

        for missing in _runs(steps, lambda step: not is_known(step)):
            before_s = missing[0] - EVALUATION_S
            received_from_s = before_s - LONGEST_REQUEST_S
            if before_s >= heard_from_s:
                earliest_ns = [heard[each].from_unix_ns for each in missing if each in heard]
                received_from_s = min(earliest_ns, default=before_s * SECOND_NS) // SECOND_NS
            counts = self._count(
                engine, goodput, before_s, missing[-1], EVALUATION_S, received_from_s
            )
            by_step = {each.until_unix_s: each for each in counts}
            for each in missing:
                self._known[goodput.digest, each] = times(each), by_step.get(each)
        found = (self._known[goodput.digest, each][1] for each in steps)
        return older + [each for each in found if each is not None]

    def _forget(self, until_s: int) -> None:
        """What is older is kept by now, or counted as if we had just begun."""
        self._heard = {step: each for step, each in self._heard.items() if step > until_s}
        self._known = {key: each for key, each in self._known.items() if key[1] > until_s}
        if self._heard_from_s is not None:
            self._heard_from_s = max(self._heard_from_s, until_s)


def _runs(steps: Sequence[int], wanted: Callable[[int], bool]) -> Iterator[list[int]]:
    """Neighbours among the steps that are wanted."""
    run: list[int] = []
    for step in steps:
        if wanted(step):
            run.append(step)
        elif run:
            yield run
            run = []
    if run:
        yield run
