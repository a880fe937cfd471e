"""Counts of the newest steps; a step is counted again only if requests were added to it.

Counts of the newest ten minutes are not stored yet, because late requests may still arrive.
Counting all of them again every 15 s would be most of the work of a busy Tailspan. The marks that
the writer adds in each transaction (`store.alerting.slo_marks`) list which steps changed, and
how far back their requests reach. The marks are complete if one process writes the database. Counts
are still made from the stored rows, so a repeated request counts once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

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
from store.alerting.slo_counts import SloCount
from store.alerting.slo_marks import Mark

REMEMBERED_S: Final = 2 * SETTLED_S


class _Heard(NamedTuple):
    """How many times requests were added to a step, and when the earliest was received."""

    times: int
    from_unix_ns: int


class FreshCounts:
    """Remembers counts of steps, if one process writes. Use it on one thread at a time.

    Args:
        count: counts a stretch of the stored requests.
    """

    def __init__(self, count: Count = count_requests) -> None:
        self._count = count
        self._heard: dict[int, _Heard] = {}
        self._sources: set[str] = set()
        self._heard_from_s: int | None = None
        self._known: dict[tuple[str, int], tuple[int, list[SloCount]]] = {}

    def hear(self, marks: Iterable[Mark]) -> None:
        """Record the steps that got requests after they were last counted."""
        for mark in marks:
            self._sources.add(mark.source)
            before = self._heard.get(mark.until_unix_s, _Heard(0, mark.received_unix_ns))
            earliest_ns = min(before.from_unix_ns, mark.received_unix_ns)
            self._heard[mark.until_unix_s] = _Heard(before.times + 1, earliest_ns)

    def begin(self, now_s: int) -> None:
        """Record since when marks are complete. Only the first call has an effect."""
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
        self._forget(to_s - REMEMBERED_S)
        heard, heard_from_s = self._heard, self._heard_from_s
        # The better word on a request takes another away, in whichever step that was.
        if len(self._sources) > 1 or heard_from_s is None:
            return self._count(engine, goodput, from_s, to_s, EVALUATION_S)
        first_s = max(from_s // EVALUATION_S * EVALUATION_S, to_s - REMEMBERED_S)
        older = (
            self._count(engine, goodput, from_s, first_s, EVALUATION_S) if from_s < first_s else []
        )
        counted = goodput.part.family if goodput.part else goodput.digest
        steps = range(first_s + EVALUATION_S, to_s + 1, EVALUATION_S)

        def times(until_s: int) -> int:
            return heard[until_s].times if until_s in heard else 0

        def is_known(until_s: int) -> bool:
            known = self._known.get((counted, until_s))
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
            by_step: dict[int, list[SloCount]] = {}
            for count in counts:
                by_step.setdefault(count.until_unix_s, []).append(count)
            for each in missing:
                self._known[counted, each] = times(each), by_step.get(each, [])
        return older + [count for each in steps for count in self._known[counted, each][1]]

    def _forget(self, until_s: int) -> None:
        """Forget older steps: their counts are stored by now, or are made as after a start."""
        self._heard = {step: each for step, each in self._heard.items() if step > until_s}
        self._known = {key: each for key, each in self._known.items() if key[1] > until_s}
        if self._heard_from_s is not None:
            self._heard_from_s = max(self._heard_from_s, until_s)


def _runs(steps: Sequence[int], wanted: Callable[[int], bool]) -> Iterator[list[int]]:
    """Yield runs of adjacent steps that are wanted."""
    run: list[int] = []
    for step in steps:
        if wanted(step):
            run.append(step)
        elif run:
            yield run
            run = []
    if run:
        yield run
