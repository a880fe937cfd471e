"""Cache the counts of the newest time buckets (15 s each) until a bucket receives more requests.

The counts of the newest ten minutes are not stored, because late requests may still arrive. The
writer of requests marks each bucket that got requests (`store.alerting.slo_marks`). An evaluator
removes the marks that it has read, so only one evaluator may run (`store.leases`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Engine

from alerts.evaluation.counting import (
    EVALUATION_S,
    LONGEST_REQUEST_S,
    SECOND_NS,
    SETTLED_S,
    Count,
    count_requests,
)
from alerts.objectives import GoodEvents, GoodProbes
from store.alerting.slo_counts import SloCount
from store.alerting.slo_marks import PROBE_SOURCE, Mark

REMEMBERED_S: Final = 2 * SETTLED_S


class _Added(NamedTuple):
    times: int
    from_unix_ns: int


class CountCache:
    """The cache is not thread-safe. No other process may evaluate objectives in the same
    database."""

    def __init__(self, count: Count = count_requests) -> None:
        self._count = count
        self._added: dict[int, _Added] = {}
        self._sources: set[str] = set()
        self._complete_from_s: int | None = None
        self._known: dict[tuple[str, int], tuple[int, list[SloCount]]] = {}

    def add_marks(self, marks: Iterable[Mark]) -> None:
        """Record that the marked buckets must be counted again."""
        for mark in marks:
            if mark.source == PROBE_SOURCE:
                continue
            self._sources.add(mark.source)
            before = self._added.get(mark.until_unix_s, _Added(0, mark.received_unix_ns))
            earliest_ns = min(before.from_unix_ns, mark.received_unix_ns)
            self._added[mark.until_unix_s] = _Added(before.times + 1, earliest_ns)

    def begin(self, now_s: int) -> None:
        """Record that every request added after `now_s` has a mark. Only the first call has an
        effect."""
        if self._complete_from_s is None:
            self._complete_from_s = now_s

    def count(
        self,
        engine: Engine,
        goodput: GoodEvents,
        from_s: int,
        to_s: int,
        bucket_s: int = EVALUATION_S,
        received_from_s: int | None = None,
        /,
    ) -> list[SloCount]:
        """Return counts by bucket, as `counting.count_requests` does. `to_s` must be the end of a
        bucket."""
        if isinstance(goodput, GoodProbes):  # probes are few, so they are counted again each time
            return self._count(engine, goodput, from_s, to_s, EVALUATION_S)
        self._forget(to_s - REMEMBERED_S)
        added, complete_from_s = self._added, self._complete_from_s
        # A row from a better source may replace a row of the same request in a different bucket.
        # The bucket of the replaced row then gets no mark.
        if len(self._sources) > 1 or complete_from_s is None:
            return self._count(engine, goodput, from_s, to_s, EVALUATION_S)
        first_s = max(from_s // EVALUATION_S * EVALUATION_S, to_s - REMEMBERED_S)
        older = (
            self._count(engine, goodput, from_s, first_s, EVALUATION_S) if from_s < first_s else []
        )
        counted = goodput.part.family if goodput.part else goodput.digest
        steps = range(first_s + EVALUATION_S, to_s + 1, EVALUATION_S)

        def times(until_s: int) -> int:
            return added[until_s].times if until_s in added else 0

        def is_known(until_s: int) -> bool:
            known = self._known.get((counted, until_s))
            return known is not None and known[0] == times(until_s)

        for missing in _runs(steps, lambda step: not is_known(step)):
            before_s = missing[0] - EVALUATION_S
            received_from_s = before_s - LONGEST_REQUEST_S
            if before_s >= complete_from_s:
                earliest_ns = [added[each].from_unix_ns for each in missing if each in added]
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
        """Remove buckets before `until_s`, whose counts are usually stored by now."""
        self._added = {step: each for step, each in self._added.items() if step > until_s}
        self._known = {key: each for key, each in self._known.items() if key[1] > until_s}
        if self._complete_from_s is not None:
            self._complete_from_s = max(self._complete_from_s, until_s)


def _runs(steps: Sequence[int], wanted: Callable[[int], bool]) -> Iterator[list[int]]:
    run: list[int] = []
    for step in steps:
        if wanted(step):
            run.append(step)
        elif run:
            yield run
            run = []
    if run:
        yield run
