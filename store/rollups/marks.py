"""Mark the buckets (minutes and hours) whose rollups must be built, and store the time since which
their source data is complete.

The writer marks the minutes of new rows in the transaction that writes the rows. A build removes
only the marks that existed before it read the rows. Requests and samples have separate marks.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from secrets import randbits
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, Connection, Engine, Table, and_, select

from store import dialects
from store.connections import reading, writing
from store.rollups.sample_tables import SAMPLE_MARKS, SAMPLE_STATE
from store.rollups.tables import DAY_S, HOUR_S, MARKS, MINUTE_S, STATE
from store.schema import GPUS, REQUESTS, SAMPLES

SECOND_NS: Final = 10**9
_MINUTE_NS: Final = MINUTE_S * SECOND_NS
_AT_ONCE: Final = 500


class RollupSource(NamedTuple):
    """Tables that are rolled up together, and the tables of their marks and state."""

    instants: "tuple[Column[int], ...]"
    marks: Table
    state: Table


REQUEST_ROLLUPS: Final = RollupSource((REQUESTS.c.received_unix_ns,), MARKS, STATE)
SAMPLE_ROLLUPS: Final = RollupSource(
    (SAMPLES.c.at_unix_ns, GPUS.c.at_unix_ns), SAMPLE_MARKS, SAMPLE_STATE
)


def mark_minutes(
    connection: Connection, of: RollupSource, *several: Sequence[tuple[Any, ...]]
) -> None:
    """Mark the minutes of rows: one sequence of rows for each table in `of.instants`."""
    minutes: set[int] = set()
    for instant, rows in zip(of.instants, several, strict=True):
        at = instant.table.columns.keys().index(instant.name)
        minutes.update(row[at] // _MINUTE_NS for row in rows)
    mark(connection, MINUTE_S, [each * MINUTE_S for each in minutes], of)


def mark(
    connection: Connection,
    width_s: int,
    starts_unix_s: Iterable[int],
    of: RollupSource = REQUEST_ROLLUPS,
) -> None:
    """Mark buckets whose rollups must be built."""
    token = randbits(63)
    rows = [(width_s, start, token) for start in sorted(starts_unix_s)]
    if rows:
        dialects.of(connection.engine).inserting(connection.engine, of.marks)(connection, rows)


def unmark(
    connection: Connection,
    width_s: int,
    start_unix_s: int,
    marks: Sequence[int],
    of: RollupSource = REQUEST_ROLLUPS,
) -> int:
    """Remove marks of a bucket. Return how many of these marks still existed."""
    remove = dialects.of(connection.engine).remove
    return sum(
        remove(
            connection,
            of.marks,
            and_(
                of.marks.c.width_s == width_s,
                of.marks.c.from_unix_s == start_unix_s,
                of.marks.c.token.in_(marks[first : first + _AT_ONCE]),
            ),
        )
        for first in range(0, len(marks), _AT_ONCE)
    )


def marked(
    engine: Engine, width_s: int, of: RollupSource = REQUEST_ROLLUPS
) -> dict[int, list[int]]:
    """Map the start of each marked bucket to its marks, in order of time."""
    marks = of.marks
    statement = select(marks.c.from_unix_s, marks.c.token).where(marks.c.width_s == width_s)
    found: dict[int, list[int]] = defaultdict(list)
    with reading(engine) as connection:
        for start, token in connection.execute(statement.order_by(marks.c.from_unix_s)):
            found[start].append(token)
    return dict(found)


def pending(
    engine: Engine,
    width_s: int,
    from_unix_s: int,
    to_unix_s: int,
    of: RollupSource = REQUEST_ROLLUPS,
) -> list[int]:
    """The starts of marked buckets in a time range, in order."""
    marks = of.marks
    statement = (
        select(marks.c.from_unix_s)
        .distinct()
        .where(
            marks.c.width_s == width_s,
            marks.c.from_unix_s >= from_unix_s,
            marks.c.from_unix_s < to_unix_s,
        )
    )
    with reading(engine) as connection:
        return sorted(connection.scalars(statement).all())


def whole_from_unix_s(
    engine: Engine, width_s: int, of: RollupSource = REQUEST_ROLLUPS
) -> int | None:
    """Return the time since which the buckets' source data is complete, or None without rollups.

    For the width DAY_S, return the time since which hourly rollups exist.
    """
    statement = select(of.state.c.whole_from_unix_s).where(of.state.c.width_s == width_s)
    with reading(engine) as connection:
        found: int | None = connection.scalar(statement)
    return found


def no_longer_whole(
    engine: Engine, width_s: int, before_unix_s: int, of: RollupSource = REQUEST_ROLLUPS
) -> None:
    """Record that the source data of buckets before a time will be deleted."""
    start = -(-before_unix_s // MINUTE_S) * MINUTE_S
    known = whole_from_unix_s(engine, width_s, of)
    if known is not None and known < start:
        with writing(engine) as connection:
            row = {"width_s": width_s, "whole_from_unix_s": start}
            dialects.of(engine).upsert(connection, of.state, [row])


def begin(engine: Engine) -> None:
    """Mark the minutes of all existing rows, if the database has no rollups yet."""
    if whole_from_unix_s(engine, MINUTE_S) is None:
        _begin(engine, REQUEST_ROLLUPS, {MINUTE_S: 0, HOUR_S: 0})
    if whole_from_unix_s(engine, MINUTE_S, SAMPLE_ROLLUPS) is None:
        # Older versions recorded the time of deletion only for requests.
        known_from = whole_from_unix_s(engine, MINUTE_S) or 0
        _begin(engine, SAMPLE_ROLLUPS, {MINUTE_S: known_from, HOUR_S: 0, DAY_S: known_from})


def _begin(engine: Engine, of: RollupSource, whole: Mapping[int, int]) -> None:
    minutes: set[int] = set()
    with writing(engine) as connection:
        for instant in of.instants:
            minute = instant - instant % _MINUTE_NS
            starts = connection.scalars(
                select(minute.label("minute")).distinct().where(instant >= 0)
            )
            minutes.update(each // SECOND_NS for each in starts)
        mark(connection, MINUTE_S, minutes, of)
        rows = [{"width_s": each, "whole_from_unix_s": start} for each, start in whole.items()]
        dialects.of(engine).upsert(connection, of.state, rows)
