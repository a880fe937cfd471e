"""Count an objective's good and bad requests in time buckets of 15 s.

A request counts in the bucket in which it ended. If a request in flight already misses the
objective, it counts in the bucket of its last report (`in_flight_verdicts`). When it ends, its row
replaces the report. The counts of a bucket are stored `SETTLED_S` seconds after the
bucket ends.

Counting begins at the start of the newest data without a gap of more than `MAX_GAP_S`
(`history_start_s`). Earlier rows are not counted, because other requests of that time may be
missing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from alerts import groups
from alerts.burnrate import EventCounts
from alerts.evaluation.in_flight_verdicts import KNOWN, bad_at
from alerts.evaluation.probe_counting import count_probes
from alerts.evaluation.request_verdicts import RequestVerdict
from alerts.evaluation.table_verdicts import NOT_SELECTED, VERDICTS, columns_of, judge_table
from alerts.history import History, HistoryBucket
from alerts.objectives import GoodEvents, GoodProbes, Goodput
from store.alerting.slo_counts import (
    CountedRange,
    SloCount,
    earliest_counted_s,
    read_counted_range,
    read_counts,
    stepped_counts,
    store_counts,
    summed_counts,
)
from store.alerting.slo_groups import groups_with_slots
from store.alerting.slo_marks import STEP_S
from store.columns.request_columns import in_parts, request_columns
from store.continuous_data import continuous_since_unix_ns, newest_data_unix_ns
from store.joined.prefill_engines import known_roles
from store.joined.user_requests import COLUMNS as USER_COLUMNS
from store.joined.user_requests import user_requests
from store.probes import oldest_probe_unix_ns
from store.queries import oldest_request_unix_ns
from store.requests.in_flight import in_flight_tables, oldest_seen_unix_ns
from telemetry.requests import Source
from telemetry.window import Window

SECOND_NS: Final = 10**9
SETTLED_S: Final = 600
"""The counts of a bucket are stored this many seconds after its end. Senders stop retrying long
before this time."""
LONGEST_REQUEST_S: Final = 3600
"""Longer requests are missing from the stored counts."""
MAX_GAP_S: Final = 300
"""If the data has a longer gap, counting begins after the gap. If a request arrives later than this
after its end, `/metrics` counts it as late."""
CHUNK_S: Final = 6 * 3600
"""Counts are computed and stored in chunks of this many seconds."""
AT_ONCE: Final = 200_000
"""Maximum number of requests in memory at the same time."""
EVALUATION_S: Final = STEP_S
"""The evaluator's interval. Every window is a multiple of it, so the window's stored counts are
exact."""


_ONE_BAD: Final = np.array([verdict is RequestVerdict.BAD for verdict in VERDICTS], np.int64)


class Count(Protocol):
    """The signature of `count_requests`."""

    def __call__(
        self,
        engine: Engine,
        goodput: GoodEvents,
        from_s: int,
        to_s: int,
        bucket_s: int,
        received_from_s: int | None = None,
        /,
    ) -> list[SloCount]:
        """The counts of verdicts on the requests that ended in (from, to]."""


def cached(count: Count) -> Count:
    """Return `count` with a cache, so that the groups of an objective share one query per time
    range."""
    known: dict[tuple[object, ...], list[SloCount]] = {}

    def remembered(
        engine: Engine,
        goodput: GoodEvents,
        from_s: int,
        to_s: int,
        bucket_s: int,
        received_from_s: int | None = None,
        /,
    ) -> list[SloCount]:
        counted_digest = goodput.part.family if goodput.part else goodput.digest
        key = (counted_digest, from_s, to_s, bucket_s, received_from_s)
        if key not in known:
            known[key] = count(engine, goodput, from_s, to_s, bucket_s, received_from_s)
        return known[key]

    return remembered


def by_second() -> Count:
    """Return a cached function that counts in buckets of one second. Use it for ranges that begin
    or end within a bucket of 15 s."""
    count_cached = cached(count_requests)

    def count(
        engine: Engine,
        goodput: GoodEvents,
        from_s: int,
        to_s: int,
        bucket_s: int,
        received_from_s: int | None = None,
        /,
    ) -> list[SloCount]:
        return count_cached(engine, goodput, from_s, to_s, 1, received_from_s)

    return count


class Tally(NamedTuple):
    """The counts of an objective over a time range.

    `history` counts requests, or time slices if the objective has them. `real` is `history` without
    simulated requests. If there are no simulated requests, `real` is the same object. `since_s` is
    the start of the counts. `counts` always counts requests.
    """

    history: History
    real: History
    since_s: int | None
    counts: Sequence[SloCount]

    def requests(self, after_s: int) -> EventCounts:
        """The counts of requests that ended after `after_s`."""
        after = [each for each in self.counts if each.until_unix_s > after_s]
        bad = sum(each.bad for each in after)
        return EventCounts(bad, bad + sum(each.good for each in after))

    def excluded(self, after_s: int = 0) -> dict[str, int]:
        """Number of excluded requests for each reason.

        Args:
            after_s: one of the `instants` that `read_tally` received, if any.
        """
        return {
            name: sum(getattr(each, name) for each in self.counts if each.until_unix_s > after_s)
            for name in ("aborted", "client_error", "unknown")
        }


def read_tally(
    engine: Engine,
    goodput: GoodEvents,
    from_s: int,
    to_s: int,
    count: Count | None = None,
    *,
    instants: Collection[int] | None = None,
) -> Tally:
    """The counts of an objective in (from, to], in unix seconds. This function does not write to
    the store.

    Args:
        count: counts the buckets that are not stored yet; None for `by_second`.
        instants: the history may be summed only between these instants, `from_s` and `to_s`. The
            database then sums the counts between two instants, which is fast for long ranges. None
            allows any range.
    """
    slices = goodput.slices
    if slices:
        from_s = slices.first_s(from_s)
    kept = read_counted_range(engine, goodput.digest)
    began_s = history_start_s(engine, to_s, probes=isinstance(goodput, GoodProbes))
    known = [each for each in (kept.from_unix_s if kept else None, began_s) if each is not None]
    since_s = min(known, default=None)
    if goodput.part and kept:
        since_s = kept.from_unix_s  # earlier requests of the group count in `other`
    counts: list[SloCount] = []
    fresh_from_s = from_s
    if kept is not None and kept.from_unix_s <= max(from_s, since_s or 0):
        until_s = min(to_s, kept.until_unix_s)
        if slices:
            counts = stepped_counts(engine, goodput.digest, from_s, until_s, slices.length_s)
        elif instants is None:
            counts = read_counts(engine, goodput.digest, from_s, until_s)
        elif from_s < until_s:
            inside = {each for each in instants if from_s < each < until_s}
            edges = [from_s, *sorted(inside), until_s]
            counts = summed_counts(engine, goodput.digest, edges)
        fresh_from_s = max(from_s, kept.until_unix_s)
    fresh_from_s = max(fresh_from_s, (since_s or to_s) - 1)
    if fresh_from_s < to_s:
        fresh = (count or by_second())(engine, goodput, fresh_from_s, to_s, EVALUATION_S)
        counts += _own(goodput, fresh)

    def history_of(some: Iterable[SloCount]) -> History:
        buckets = _buckets(some)
        if slices:
            buckets = slices.judged(buckets, to_s)
        return History(to_s if since_s is None else since_s, buckets, EVALUATION_S)

    history = real = history_of(counts)
    if any(each.simulated for each in counts):
        real = history_of(each for each in counts if not each.simulated)
    return Tally(history, real, since_s, counts)


def _own(goodput: GoodEvents, counts: list[SloCount]) -> list[SloCount]:
    group = goodput.group_key
    return [each for each in counts if each.group == group] if group else counts


def _buckets(counts: Iterable[SloCount]) -> list[HistoryBucket]:
    return [
        HistoryBucket(each.until_unix_s, EventCounts(each.bad, each.good + each.bad))
        for each in counts
    ]


def step_counts(
    engine: Engine, goodput: GoodEvents, from_s: int, to_s: int, step_s: int
) -> list[HistoryBucket]:
    """The counts of each bucket in (from, to], over all groups. This function does not write to the
    store.

    With time slices, the events of a bucket are the slices that end in the bucket.

    Args:
        from_s: unix seconds; a multiple of the bucket's length.
        to_s: unix seconds. The last bucket may be shorter.
        step_s: a multiple of `EVALUATION_S`.
    """
    if goodput.slices is None:
        return _request_steps(engine, goodput, from_s, to_s, step_s)
    slices = goodput.slices
    first_s = slices.first_s(from_s)
    fine = _request_steps(engine, goodput, first_s, to_s, slices.length_s)
    totals: dict[int, EventCounts] = {}
    for each in slices.judged(fine, to_s):
        if each.until_s > from_s:
            until_s = from_s + -(-(each.until_s - from_s) // step_s) * step_s
            totals[until_s] = totals.get(until_s, EventCounts(0, 0)) + each.counts
    return [HistoryBucket(*each) for each in sorted(totals.items())]


def _request_steps(
    engine: Engine, goodput: GoodEvents, from_s: int, to_s: int, step_s: int
) -> list[HistoryBucket]:
    definitions = [goodput.digest]
    if goodput.by and not goodput.part:
        first = groups.key(groups.other(goodput.by))
        keys = sorted(groups_with_slots(engine, goodput.digest), key=lambda each: each != first)
        definitions = [goodput.digest + each for each in keys or [first]]
    kept = read_counted_range(engine, definitions[0])
    oldest_s = _oldest_s(engine, probes=isinstance(goodput, GoodProbes))
    found: list[SloCount] = []
    fresh = [(from_s, to_s)]
    if kept is not None:
        counted_s, until_s = (
            max(from_s, min(to_s, each)) for each in (kept.from_unix_s, kept.until_unix_s)
        )
        fresh = [(from_s, counted_s), (until_s, to_s)]
        for definition in definitions:
            found += stepped_counts(engine, definition, from_s, until_s, step_s)
    for start_s, end_s in fresh:
        if oldest_s is not None and max(start_s, oldest_s - 1) < end_s:
            start_s = max(start_s, oldest_s - 1)
            found += _own(goodput, count_requests(engine, goodput, start_s, end_s, step_s))
    totals: dict[int, EventCounts] = {}
    for each in _buckets(found):
        totals[each.until_s] = totals.get(each.until_s, EventCounts(0, 0)) + each.counts
    return [HistoryBucket(*each) for each in sorted(totals.items())]


def counts_between(engine: Engine, goodput: GoodEvents, from_s: int, to_s: int) -> EventCounts:
    """The counts in (from, to], computed only from the stored requests."""
    slices = goodput.slices
    step_s = slices.length_s if slices else to_s - from_s
    buckets = _buckets(count_requests(engine, goodput, from_s, to_s, step_s))
    if slices:
        buckets = slices.judged(buckets, to_s)
    return sum((each.counts for each in buckets), EventCounts(0, 0))


def store_tally(
    engine: Engine, goodput: GoodEvents, now_s: int, count: Count | None = None
) -> None:
    """Store the missing counts of buckets that ended more than `SETTLED_S` ago, of all groups
    together."""
    until_s = (now_s - SETTLED_S) // EVALUATION_S * EVALUATION_S
    definition, keys = goodput.digest, [""]
    if goodput.part:
        definition = goodput.part.whole.digest
        keys = [groups.key(each) for each in (groups.other(goodput.by), *goodput.part.groups)]
    kept = read_counted_range(engine, definition + keys[0])
    if kept is None:
        kept = first_counted_range(engine, goodput, now_s)
        if kept is None or not store_counts(engine, definition, [], kept, since=kept, groups=keys):
            return
    elif (
        kept.until_unix_s > until_s
        and (began_s := history_start_s(engine, now_s, probes=isinstance(goodput, GoodProbes)))
        is not None
    ):
        # The clock was ahead when these counts were stored. Count a bucket again if all its
        # requests are still stored.
        whole_s = -(-(began_s + LONGEST_REQUEST_S) // EVALUATION_S) * EVALUATION_S
        again_s = max(until_s, whole_s)
        if again_s < kept.until_unix_s:
            kept = CountedRange(min(kept.from_unix_s, again_s), again_s)
            store_counts(engine, definition, [], kept, groups=keys)
    while kept.until_unix_s < until_s:
        chunk_s = min(until_s, kept.until_unix_s + CHUNK_S)
        counts = (count or count_requests)(
            engine, goodput, kept.until_unix_s, chunk_s, EVALUATION_S
        )
        before, kept = kept, CountedRange(kept.from_unix_s, chunk_s)
        if not store_counts(engine, definition, counts, kept, since=before, groups=keys):
            return  # another evaluator changed the stored counts; the next call continues from them


def first_counted_range(engine: Engine, goodput: GoodEvents, now_s: int) -> CountedRange | None:
    """Return an empty range at the instant at which counting begins, or None if there is no recent
    data.

    Data is recent if it ended at most `MAX_GAP_S` ago. Older data also counts as recent if it
    covers a range at least as long as the time since its end. So a single span that was sent days
    late does not count as recent.
    """
    probes = isinstance(goodput, GoodProbes)
    began_s = history_start_s(engine, now_s, probes=probes)
    if began_s is None:
        return None
    if earliest_counted_s(engine, probes=probes) is None:
        newest_ns = newest_data_unix_ns(engine, now_s * SECOND_NS, probes=probes)
        newest_s = now_s if newest_ns is None else newest_ns // SECOND_NS
        if now_s - newest_s > max(MAX_GAP_S, newest_s - began_s):
            return None
    return CountedRange(*[(began_s - 1) // EVALUATION_S * EVALUATION_S] * 2)


def history_start_s(engine: Engine, at_s: int, *, probes: bool) -> int | None:
    """Return when counting began, in unix seconds, or None if there is no data.

    Data is continuous if it has no gap of more than `MAX_GAP_S`. Counting began at the start of the
    continuous data that precedes the earliest stored count of any objective. Without stored counts,
    it began at the start of the newest continuous data before `at_s`.
    """
    oldest_s = _oldest_s(engine, probes=probes)
    counted_s = earliest_counted_s(engine, probes=probes)
    if oldest_s is None or (counted_s is not None and counted_s <= oldest_s):
        return oldest_s
    until_ns: int | None
    if counted_s is not None and counted_s < at_s:
        until_ns = counted_s * SECOND_NS
    else:
        until_ns = newest_data_unix_ns(engine, at_s * SECOND_NS, probes=probes)
        if until_ns is None:
            return oldest_s
    since_ns = continuous_since_unix_ns(engine, until_ns, MAX_GAP_S * SECOND_NS, probes=probes)
    return max(oldest_s, since_ns // SECOND_NS)


def _oldest_s(engine: Engine, *, probes: bool) -> int | None:
    if probes:
        known = [oldest_probe_unix_ns(engine)]
    else:
        known = [oldest_request_unix_ns(engine), oldest_seen_unix_ns(engine)]
    return min((each // SECOND_NS for each in known if each is not None), default=None)


def count_requests(
    engine: Engine,
    goodput: GoodEvents,
    from_s: int,
    to_s: int,
    bucket_s: int,
    received_from_s: int | None = None,
) -> list[SloCount]:
    """Count an objective's requests or probes in (from, to], for each time bucket and verdict.

    A bad request in flight counts in the bucket of its last report. Simulated requests are counted
    separately. If `goodput` describes one group, the result has the counts of all groups. Requests
    that were received before `received_from_s` are not read.
    """
    if isinstance(goodput, GoodProbes):
        return count_probes(engine, goodput, from_s, to_s, bucket_s, LONGEST_REQUEST_S)
    assert isinstance(goodput, Goodput)
    part = goodput.part
    where = part.whole.where if part else goodput.where
    columns = list(
        dict.fromkeys(
            [*columns_of(where, goodput.good), "received_unix_ns", "e2e_s", "source", *goodput.by]
        )
    )
    keys = [""]
    if part:
        keys = [groups.key(each) for each in (groups.other(goodput.by), *part.groups)]
    # With separate prefill and decode servers, a user's request has two rows.
    roles = known_roles(engine, to_s * SECOND_NS)
    if roles:
        columns = list(dict.fromkeys([*columns, *USER_COLUMNS]))
    totals: dict[tuple[int, bool, str], np.ndarray] = {}
    start_s = max(0, from_s - LONGEST_REQUEST_S if received_from_s is None else received_from_s)
    window = Window(min(start_s, to_s) * SECOND_NS, to_s * SECOND_NS)
    for some in in_parts(engine, window, AT_ONCE):
        table = request_columns(engine, some, columns, ended_after_unix_ns=from_s * SECOND_NS)
        if roles:
            table = user_requests(engine, table, roles)
        codes = judge_table(where, goodput.good, table)
        received_ns = table["received_unix_ns"].to_numpy()
        ended_ns = received_ns + np.rint(table["e2e_s"].to_numpy() * SECOND_NS).astype(np.int64)
        selected = (codes != NOT_SELECTED) & (ended_ns > from_s * SECOND_NS)
        selected &= ended_ns <= to_s * SECOND_NS
        until_s = -(-ended_ns[selected] // (bucket_s * SECOND_NS)) * bucket_s
        simulated = pc.equal(table["source"], Source.SIMULATOR.value).to_numpy()[selected]
        place = np.zeros(len(until_s), np.int64)
        if part:
            place = groups.positions_in(table.filter(pa.array(selected)), goodput.by, part.groups)
        for kind, at in product((False, True), range(len(keys))):
            which = (simulated == kind) & (place == at)
            if not which.any():
                continue
            instants, places = np.unique(until_s[which], return_inverse=True)
            cells = np.bincount(
                places * len(VERDICTS) + codes[selected][which],
                minlength=len(instants) * len(VERDICTS),
            ).reshape(len(instants), len(VERDICTS))
            for instant, counts in zip(instants.tolist(), cells, strict=True):
                of = (instant, kind, keys[at])
                totals[of] = totals.get(of, 0) + counts
    # Read the requests in flight after the rows, so that no request is counted twice. If a row
    # arrives between these reads, the next evaluation counts it.
    reported = _bad_in_flight(engine, goodput, from_s, to_s, bucket_s)
    for (instant, kind, at), number in reported.items():
        of = (instant, kind, keys[at])
        totals[of] = totals.get(of, 0) + number * _ONE_BAD
    names = [str(verdict) for verdict in VERDICTS]
    return [
        SloCount(until, **dict(zip(names, each.tolist(), strict=True)), simulated=kind, group=key)
        for (until, kind, key), each in sorted(totals.items())
    ]


def _bad_in_flight(
    engine: Engine, goodput: Goodput, from_s: int, to_s: int, bucket_s: int
) -> Counter[tuple[int, bool, int]]:
    """Count the bad requests in flight for each bucket and group index. Simulated requests are
    counted separately."""
    part = goodput.part
    whole = part.whole if part else goodput
    assert isinstance(whole, Goodput)
    wanted = (*KNOWN, "received_unix_ns", "seen_unix_ns")
    found: Counter[tuple[int, bool, int]] = Counter()
    for reports in in_flight_tables(engine, wanted, from_s * SECOND_NS, to_s * SECOND_NS):
        if not reports.num_rows:
            continue
        seen_ns = reports["seen_unix_ns"].to_numpy()
        age_s = (seen_ns - reports["received_unix_ns"].to_numpy()) / SECOND_NS
        bad = bad_at(whole, {name: reports[name] for name in KNOWN}, age_s)
        if not bad.any():
            continue
        reports, seen_ns = reports.filter(pa.array(bad)), seen_ns[bad]
        until_s = -(-seen_ns // (bucket_s * SECOND_NS)) * bucket_s
        simulated = pc.equal(reports["source"], Source.SIMULATOR.value).to_numpy()
        place = np.zeros(len(until_s), np.int64)
        if part:
            place = groups.positions_in(reports, goodput.by, part.groups)
        found.update(zip(until_s.tolist(), simulated.tolist(), place.tolist(), strict=True))
    return found
