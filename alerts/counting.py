"""An objective's counts from the store: what was kept, and the rest from the requests.

A request counts when it ended. One that has not ended and already misses the objective counts as
bad in the step in which it was last seen (`alerts.judging_in_flight`). That step moves on with
each report; then the request's row counts in its place. Steps of 15 s that ended long enough ago
are kept, and never counted again; the newest are counted from the requests each time, for some of
them are still to come. Counting is repeatable: what a crash interrupts is counted again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow.compute as pc
from sqlalchemy import Engine

from alerts.burnrate import Counts
from alerts.history import Bucket, History
from alerts.judging import Verdict
from alerts.judging_in_flight import KNOWN, bad_at
from alerts.judging_tables import NOT_SELECTED, VERDICTS, columns_of, judge_table
from alerts.objectives import Goodput
from store.columns import in_parts, request_columns
from store.in_flight import in_flight_tables, oldest_seen_unix_ns
from store.queries import Window
from store.slo_counts import (
    Counted,
    SloCount,
    counted,
    keep_counts,
    oldest_request_unix_ns,
    read_counts,
    stepped_counts,
    summed_counts,
)
from store.slo_marks import STEP_S
from telemetry.requests import Source

SECOND_NS: Final = 10**9
SETTLED_S: Final = 600
"""After so long a request that ended is in the store: senders give up much sooner."""
LONGEST_REQUEST_S: Final = 3600
"""A request that took longer is counted while it is recent, and not kept."""
CHUNK_S: Final = 6 * 3600
"""Of requests that are counted before it is kept."""
AT_ONCE: Final = 200_000
"""Requests that are in memory at once."""
EVALUATION_S: Final = STEP_S
"""Kept counts have the evaluator's own step, and every window is a multiple of it: whether a
window is read from kept counts or from requests, it holds the same."""


_ONE_BAD: Final = np.array([verdict is Verdict.BAD for verdict in VERDICTS], np.int64)


class Count(Protocol):
    """`count_requests`, or what stands in for it."""

    def __call__(
        self,
        engine: Engine,
        goodput: Goodput,
        from_s: int,
        to_s: int,
        bucket_s: int,
        received_from_s: int | None = None,
        /,
    ) -> list[SloCount]:
        """The requests that ended in (from, to], judged."""


class Tally(NamedTuple):
    """Counts over a stretch of time.

    `since_s` is from when they hold: nothing earlier is known. None where nothing is. `real` is
    the history without simulated requests: `history` itself where there are none.
    """

    history: History
    real: History
    since_s: int | None
    counts: Sequence[SloCount]

    def excluded(self, after_s: int = 0) -> dict[str, int]:
        """Return how many requests that ended after an instant were left out, by reason.

        Args:
            after_s: in unix seconds; one of the `instants` if `read_tally` was given any.
        """
        return {
            name: sum(getattr(each, name) for each in self.counts if each.until_unix_s > after_s)
            for name in ("aborted", "client_error", "unknown")
        }


def read_tally(
    engine: Engine,
    goodput: Goodput,
    from_s: int,
    to_s: int,
    count: Count | None = None,
    *,
    instants: Collection[int] | None = None,
) -> Tally:
    """The counts of an objective in (from, to]; writes nothing.

    Args:
        engine: from `open_database`.
        goodput: what is counted.
        from_s: in unix seconds.
        to_s: the same.
        count: counts what is not kept yet, by whole steps; without it, by the second.
        instants: the history is asked about nothing but stretches between two of these, `from`
            and `to`: of a month the database then adds up what it kept. None for any stretch.
    """
    kept = counted(engine, goodput.digest)
    oldest_s = _oldest_s(engine)
    known = [each for each in (kept.from_unix_s if kept else None, oldest_s) if each is not None]
    since_s = min(known, default=None)
    counts: list[SloCount] = []
    fresh_from_s = from_s
    if kept is not None and kept.from_unix_s <= max(from_s, since_s or 0):
        until_s = min(to_s, kept.until_unix_s)
        if instants is None:
            counts = read_counts(engine, goodput.digest, from_s, until_s)
        elif from_s < until_s:
            inside = {each for each in instants if from_s < each < until_s}
            edges = [from_s, *sorted(inside), until_s]
            counts = summed_counts(engine, goodput.digest, edges)
        fresh_from_s = max(from_s, kept.until_unix_s)
    fresh_from_s = max(fresh_from_s, (since_s or to_s) - 1)
    if count is None:
        counts += count_requests(engine, goodput, fresh_from_s, to_s, 1)
    elif fresh_from_s < to_s:
        counts += count(engine, goodput, fresh_from_s, to_s, EVALUATION_S)
    history = _history(counts, to_s if since_s is None else since_s)
    real = history
    if any(each.simulated for each in counts):
        real = _history([each for each in counts if not each.simulated], history.since_s)
    return Tally(history, real, since_s, counts)


def _history(counts: Iterable[SloCount], since_s: int) -> History:
    buckets = [Bucket(each.until_unix_s, Counts(each.bad, each.good + each.bad)) for each in counts]
    return History(since_s, buckets, EVALUATION_S)


def step_counts(
    engine: Engine, goodput: Goodput, from_s: int, to_s: int, step_s: int
) -> list[SloCount]:
    """The counts in (from, to] by steps, what is kept added up by the database; writes nothing.

    Args:
        engine: from `open_database`.
        goodput: what is counted.
        from_s: in unix seconds; a multiple of the step.
        to_s: the same; the last step may be cut by it.
        step_s: a multiple of `EVALUATION_S`.
    """
    kept = counted(engine, goodput.digest)
    oldest_s = _oldest_s(engine)
    found: list[SloCount] = []
    fresh_s = from_s
    if kept is not None and kept.from_unix_s <= max(from_s, oldest_s or 0):
        fresh_s = max(from_s, min(to_s, kept.until_unix_s))
        found = stepped_counts(engine, goodput.digest, from_s, fresh_s, step_s)
    if oldest_s is not None and max(fresh_s, oldest_s - 1) < to_s:
        fresh_s = max(fresh_s, oldest_s - 1)
        found += count_requests(engine, goodput, fresh_s, to_s, step_s)
    names = [str(verdict) for verdict in VERDICTS]
    totals: dict[int, list[int]] = {}
    for each in found:
        total = totals.setdefault(each.until_unix_s, [0] * len(names))
        totals[each.until_unix_s] = [
            before + getattr(each, name) for before, name in zip(total, names, strict=True)
        ]
    return [
        SloCount(until, **dict[str, Any](zip(names, total, strict=True)))
        for until, total in sorted(totals.items())
    ]


def keep_tally(engine: Engine, goodput: Goodput, now_s: int, count: Count | None = None) -> None:
    """Count the steps that are settled and not kept yet, and keep them."""
    until_s = (now_s - SETTLED_S) // EVALUATION_S * EVALUATION_S
    kept = counted(engine, goodput.digest)
    if kept is None:
        oldest_s = _oldest_s(engine)
        if oldest_s is None:
            return
        kept = Counted(*[(oldest_s - 1) // EVALUATION_S * EVALUATION_S] * 2)
    elif kept.until_unix_s > until_s and (oldest_s := _oldest_s(engine)) is not None:
        # Counted by a clock that was ahead, so what was still to come is counted as nothing. What
        # ended before the oldest request that is left cannot be counted again.
        whole_s = -(-(oldest_s + LONGEST_REQUEST_S) // EVALUATION_S) * EVALUATION_S
        again_s = max(until_s, whole_s)
        if again_s < kept.until_unix_s:
            kept = Counted(min(kept.from_unix_s, again_s), again_s)
            keep_counts(engine, goodput.digest, [], kept)
    while kept.until_unix_s < until_s:
        chunk_s = min(until_s, kept.until_unix_s + CHUNK_S)
        counts = (count or count_requests)(
            engine, goodput, kept.until_unix_s, chunk_s, EVALUATION_S
        )
        before, kept = kept, Counted(kept.from_unix_s, chunk_s)
        if not keep_counts(engine, goodput.digest, counts, kept, since=before):
            return  # another evaluator found requests to count again: the next time goes on there


def count_requests(
    engine: Engine,
    goodput: Goodput,
    from_s: int,
    to_s: int,
    bucket_s: int,
    received_from_s: int | None = None,
) -> list[SloCount]:
    """The requests that ended in (from, to], judged, by buckets of when they ended, and those in
    flight that are bad, by buckets of when they were last seen; simulated ones apart.

    `received_from_s` says that none of them was received before, where that is known.
    """
    columns = list(
        dict.fromkeys(
            [*columns_of(goodput.where, goodput.good), "received_unix_ns", "e2e_s", "source"]
        )
    )
    totals: dict[tuple[int, bool], np.ndarray] = {}
    start_s = max(0, from_s - LONGEST_REQUEST_S if received_from_s is None else received_from_s)
    window = Window(min(start_s, to_s) * SECOND_NS, to_s * SECOND_NS)
    for part in in_parts(engine, window, AT_ONCE):
        # Of an hour's requests nearly all ended long before: they are not even fetched.
        table = request_columns(engine, part, columns, ended_after_unix_ns=from_s * SECOND_NS)
        codes = judge_table(goodput.where, goodput.good, table)
        received_ns = table["received_unix_ns"].to_numpy()
        ended_ns = received_ns + np.rint(table["e2e_s"].to_numpy() * SECOND_NS).astype(np.int64)
        meant = (codes != NOT_SELECTED) & (ended_ns > from_s * SECOND_NS)
        meant &= ended_ns <= to_s * SECOND_NS
        until_s = -(-ended_ns[meant] // (bucket_s * SECOND_NS)) * bucket_s
        simulated = pc.equal(table["source"], Source.SIMULATOR.value).to_numpy()[meant]
        for kind in (False, True):
            which = simulated == kind
            instants, places = np.unique(until_s[which], return_inverse=True)
            cells = np.bincount(
                places * len(VERDICTS) + codes[meant][which],
                minlength=len(instants) * len(VERDICTS),
            ).reshape(len(instants), len(VERDICTS))
            for instant, counts in zip(instants.tolist(), cells, strict=True):
                totals[instant, kind] = totals.get((instant, kind), 0) + counts
    # After the rows: one that arrives in between is counted by the next evaluation, never twice.
    for key, number in _bad_in_flight(engine, goodput, from_s, to_s, bucket_s).items():
        totals[key] = totals.get(key, 0) + number * _ONE_BAD
    names = [str(verdict) for verdict in VERDICTS]
    return [
        SloCount(until, **dict(zip(names, each.tolist(), strict=True)), simulated=kind)
        for (until, kind), each in sorted(totals.items())
    ]


def _bad_in_flight(
    engine: Engine, goodput: Goodput, from_s: int, to_s: int, bucket_s: int
) -> Counter[tuple[int, bool]]:
    """Count the requests last seen in flight in (from, to] that are bad, by bucket and kind."""
    wanted = (*KNOWN, "received_unix_ns", "seen_unix_ns")
    found: Counter[tuple[int, bool]] = Counter()
    for reports in in_flight_tables(engine, wanted, from_s * SECOND_NS, to_s * SECOND_NS):
        if not reports.num_rows:
            continue
        seen_ns = reports["seen_unix_ns"].to_numpy()
        age_s = (seen_ns - reports["received_unix_ns"].to_numpy()) / SECOND_NS
        bad = bad_at(goodput, {name: reports[name] for name in KNOWN}, age_s)
        until_s = -(-seen_ns // (bucket_s * SECOND_NS)) * bucket_s
        simulated = pc.equal(reports["source"], Source.SIMULATOR.value).to_numpy()
        found.update(zip(until_s[bad].tolist(), simulated[bad].tolist(), strict=True))
    return found


def _oldest_s(engine: Engine) -> int | None:
    """From when on counts hold: the oldest row, or the oldest report of a request in flight."""
    known = [oldest_request_unix_ns(engine), oldest_seen_unix_ns(engine)]
    return min((each // SECOND_NS for each in known if each is not None), default=None)
