"""Build and store rollups of samples, and read the counters of engines and GPUs in a window.

If a minute has no rollup, its samples are read. Long windows are read from hourly rollups.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection, Engine, and_, select

from store import dialects
from store.connections import reading
from store.rollups.counter_spans import CounterSpans, SpanOwners, end_to_end, joined, of_samples
from store.rollups.marks import SAMPLE_ROLLUPS, SECOND_NS, RollupSource, pending, whole_from_unix_s
from store.rollups.plan import down, neighbours, up
from store.rollups.sample_tables import AMOUNT, INSTANT, KINDS, SampleKind, first_of, last_of
from store.rollups.tables import DAY_S, HOUR_S, MINUTE_S, packed
from telemetry.counter_series import FloatArray, IntArray
from telemetry.window import Window

BY_MINUTES_S: Final = 2 * DAY_S
"""Windows longer than this are read from hourly rollups. Idle energy can be computed only from
per-minute rollups."""
MAX_BY_MINUTES: Final = 1_000_000
"""Maximum number of engine minutes plus GPU minutes that are read. Each minute takes about 1 µs of
CPU time (benchmarks/fleet_questions.py). Above the maximum, hourly rollups are read."""
_EDGE_S: Final = MINUTE_S
"""A window is extended by this time, to include the counters at its edges."""


class SampleRollups:
    """Builds the rollups of samples by minute and hour."""

    of: RollupSource = SAMPLE_ROLLUPS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def build(self, width_s: int, start_unix_s: int) -> list[tuple[SampleKind, CounterSpans]]:
        """Build a bucket. It contains the counter spans of each kind of samples."""
        if width_s == MINUTE_S:
            return [
                (kind, of_samples(self._engine, kind, start_unix_s, start_unix_s + MINUTE_S))
                for kind in KINDS
            ]
        with reading(self._engine) as connection:
            return [
                (
                    kind,
                    joined(
                        load(connection, kind, MINUTE_S, start_unix_s, start_unix_s + HOUR_S),
                        start_unix_s,
                    ),
                )
                for kind in KINDS
            ]

    def store(
        self,
        connection: Connection,
        width_s: int,
        start_unix_s: int,
        made: list[tuple[SampleKind, CounterSpans]],
    ) -> None:
        """Replace a stored bucket."""
        dialect = dialects.of(connection.engine)
        for kind, spans in made:
            for simulated in (False, True):
                key = {"width_s": width_s, "from_unix_s": start_unix_s, "simulated": simulated}
                part = spans.only(spans.simulated == simulated)
                if part.which.size:
                    dialect.upsert(connection, kind.rollups, [{**key, **_row(kind, part)}])
                else:
                    columns = kind.rollups.c
                    which = (columns[name] == value for name, value in key.items())
                    dialect.remove(connection, kind.rollups, and_(*which))

    def committed(self) -> None:
        """Do nothing, because this object has no state."""


def known_from_unix_s(engine: Engine) -> int | None:
    """The time since which rollups of samples per hour exist, or None without rollups."""
    return whole_from_unix_s(engine, DAY_S, SAMPLE_ROLLUPS)


def read_counter_spans(
    engine: Engine, window: Window, kinds: Sequence[SampleKind] = KINDS
) -> list[CounterSpans]:
    """Each kind's counter spans in a window and shortly before and after it."""
    start = window.from_unix_ns // SECOND_NS - _EDGE_S
    end = window.to_unix_ns // SECOND_NS + _EDGE_S
    rows_from, minutes_from = (
        whole_from_unix_s(engine, width_s, SAMPLE_ROLLUPS) for width_s in (MINUTE_S, HOUR_S)
    )
    if rows_from is None or minutes_from is None:
        return [of_samples(engine, kind, start, end) for kind in kinds]
    marked = pending(engine, MINUTE_S, max(start, rows_from), end, SAMPLE_ROLLUPS)
    first_hour = up(start, HOUR_S)
    last_hour = down(end, HOUR_S)
    if (
        last_hour > first_hour
        and end - start <= BY_MINUTES_S
        and _estimated_minutes(engine, start, end) <= MAX_BY_MINUTES
    ):
        last_hour = first_hour
    if start < minutes_from:
        # Before this time, only hourly rollups exist. They may contain spans outside the window,
        # which callers ignore.
        first_hour = down(start, HOUR_S)
        last_hour = max(last_hour, min(up(end, HOUR_S), minutes_from))
    unmade = {
        *pending(engine, HOUR_S, max(first_hour, minutes_from), last_hour, SAMPLE_ROLLUPS),
        *(down(minute, HOUR_S) for minute in marked),
    }
    unmade = {hour for hour in unmade if first_hour <= hour < last_hour}
    of_minutes = [(hour, hour + HOUR_S) for hour in sorted(unmade)]
    if last_hour <= first_hour:
        of_minutes.append((start, end))
    else:
        of_minutes += [(start, first_hour), (last_hour, end)]
    of_samples_alone = neighbours(np.array(marked, np.int64), MINUTE_S)
    found = []
    for kind in kinds:
        several = [of_samples(engine, kind, *each) for each in of_samples_alone]
        with reading(engine) as connection:
            if last_hour > first_hour:
                hours = load(connection, kind, HOUR_S, first_hour, last_hour)
                several.append(_without_buckets(hours, sorted(unmade)))
            for each in of_minutes:
                if each[0] < each[1]:
                    several.append(
                        _without_buckets(load(connection, kind, MINUTE_S, *each), marked)
                    )
        found.append(end_to_end(several, kind))
    return found


def _estimated_minutes(engine: Engine, start: int, end: int) -> int:
    """Estimate the number of minutes from the last minute of the range."""
    number = 0
    with reading(engine) as connection:
        for kind in KINDS:
            columns = kind.rollups.c
            statement = (
                select(columns.things)
                .where(
                    columns.width_s == MINUTE_S,
                    columns.from_unix_s >= start,
                    columns.from_unix_s < end,
                )
                .order_by(columns.from_unix_s.desc())
                .limit(1)
            )
            owners = connection.execute(statement).scalar()
            number += 0 if owners is None else len(json.loads(owners))
    return number * (end - start) // MINUTE_S


def _without_buckets(some: CounterSpans, starts: Sequence[int]) -> CounterSpans:
    return some.only(~np.isin(some.bucket_unix_s, np.array(starts, np.int64)))


def load(
    connection: Connection, kind: SampleKind, width_s: int, from_unix_s: int, to_unix_s: int
) -> CounterSpans:
    """Load the stored buckets that start in a time range."""
    columns = kind.rollups.c
    statement = select(kind.rollups).where(
        columns.width_s == width_s,
        columns.from_unix_s >= from_unix_s,
        columns.from_unix_s < to_unix_s,
    )
    rows = connection.execute(statement).all()
    known = SpanOwners()
    places: dict[str, list[int]] = {}
    which: list[int] = []
    sizes = []
    for row in rows:
        # Neighbouring buckets usually have the same engines, so each JSON text is parsed once.
        if (mine := places.get(row.things)) is None:
            pairs = [(tuple(each[:-1]), each[-1]) for each in json.loads(row.things)]
            mine = places[row.things] = [known.place(*each) for each in pairs]
        which += mine
        sizes.append(len(mine))
    number = np.array(sizes, np.int64)

    def amounts(name: str) -> FloatArray:
        at = columns.keys().index(name)
        blocks = [
            packed(np.full(size, np.nan), AMOUNT) if row[at] is None else row[at]
            for row, size in zip(rows, sizes, strict=True)
        ]
        return np.frombuffer(b"".join(blocks), AMOUNT)

    def instants(name: str) -> IntArray:
        at = columns.keys().index(name)
        return np.frombuffer(b"".join(row[at] for row in rows), INSTANT)

    return CounterSpans(
        known.owners,
        known.about,
        np.array(which, np.int64),
        np.repeat(np.array([row.simulated for row in rows], bool), number),
        np.repeat(np.array([row.from_unix_s for row in rows], np.int64), number),
        instants("first_unix_ns"),
        instants("last_unix_ns"),
        {name: amounts(first_of(name)) for name in kind.totals},
        {name: amounts(last_of(name)) for name in kind.totals},
        {name: amounts(name) for name in kind.means},
    )


def _row(kind: SampleKind, some: CounterSpans) -> dict[str, Any]:
    amounts = {
        **{first_of(name): some.first[name] for name in kind.totals},
        **{last_of(name): some.last[name] for name in kind.totals},
        **some.means,
    }
    owners = [[*some.owners[at], some.about[at]] for at in some.which.tolist()]
    return {
        "things": json.dumps(owners, separators=(",", ":")),
        "first_unix_ns": packed(some.first_unix_ns, INSTANT),
        "last_unix_ns": packed(some.last_unix_ns, INSTANT),
        **{
            name: None if np.isnan(each).all() else packed(each, AMOUNT)
            for name, each in amounts.items()
        },
    }
