"""Marks: which buckets must be made, and since when their data is complete.

The writer marks the minutes of its rows in the same transaction. So a row is either in its minute's
rollup, or its minute is marked and readers take it from the rows. Each transaction has its own
mark; whoever makes a bucket removes the marks that existed before it read the rows, so a row that
arrives meanwhile leaves another mark. Requests and samples are marked separately: samples arrive
each second, and would cause each minute of requests to be read from its rows for longer.
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
"""Marks named in one statement."""


class Rolled(NamedTuple):
    """Rows that are rolled up together, and the tables that record how far."""

    instants: "tuple[Column[int], ...]"
    """When each row was."""
    marks: Table
    state: Table


REQUESTED: Final = Rolled((REQUESTS.c.received_unix_ns,), MARKS, STATE)
SAMPLED: Final = Rolled((SAMPLES.c.at_unix_ns, GPUS.c.at_unix_ns), SAMPLE_MARKS, SAMPLE_STATE)


def mark_minutes(connection: Connection, of: Rolled, *several: Sequence[tuple[Any, ...]]) -> None:
    """Mark the minutes of rows, each in its table's order: the rows of each of `of.instants`."""
    minutes: set[int] = set()
    for instant, rows in zip(of.instants, several, strict=True):
        at = instant.table.columns.keys().index(instant.name)
        minutes.update(row[at] // _MINUTE_NS for row in rows)
    mark(connection, MINUTE_S, [each * MINUTE_S for each in minutes], of)


def mark(
    connection: Connection, width_s: int, starts_unix_s: Iterable[int], of: Rolled = REQUESTED
) -> None:
    """Mark buckets."""
    token = randbits(63)
    rows = [(width_s, start, token) for start in sorted(starts_unix_s)]
    if rows:
        dialects.of(connection.engine).inserting(connection.engine, of.marks)(connection, rows)


def unmark(
    connection: Connection,
    width_s: int,
    start_unix_s: int,
    marks: Sequence[int],
    of: Rolled = REQUESTED,
) -> int:
    """Take marks away; how many of them were still there."""
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


def marked(engine: Engine, width_s: int, of: Rolled = REQUESTED) -> dict[int, list[int]]:
    """The marks of each bucket that has any, by its start, in order."""
    marks = of.marks
    statement = select(marks.c.from_unix_s, marks.c.token).where(marks.c.width_s == width_s)
    found: dict[int, list[int]] = defaultdict(list)
    with reading(engine) as connection:
        for start, token in connection.execute(statement.order_by(marks.c.from_unix_s)):
            found[start].append(token)
    return dict(found)


def pending(
    engine: Engine, width_s: int, from_unix_s: int, to_unix_s: int, of: Rolled = REQUESTED
) -> list[int]:
    """The starts of marked buckets in a stretch of time, in order."""
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


def whole_from_unix_s(engine: Engine, width_s: int, of: Rolled = REQUESTED) -> int | None:
    """From where on what buckets are made of is whole; None where none were begun.

    Of DAY_S: from where on there are hours, as of buckets that would be made of them.
    """
    statement = select(of.state.c.whole_from_unix_s).where(of.state.c.width_s == width_s)
    with reading(engine) as connection:
        found: int | None = connection.scalar(statement)
    return found


def no_longer_whole(
    engine: Engine, width_s: int, before_unix_s: int, of: Rolled = REQUESTED
) -> None:
    """Record that the rows behind buckets before this instant are about to be deleted.

    The buckets stay as they are.
    """
    start = -(-before_unix_s // MINUTE_S) * MINUTE_S
    known = whole_from_unix_s(engine, width_s, of)
    if known is not None and known < start:
        with writing(engine) as connection:
            row = {"width_s": width_s, "whole_from_unix_s": start}
            dialects.of(engine).put(connection, of.state, [row])


def begin(engine: Engine) -> None:
    """Have rollups made of the rows that were there before there were any."""
    if whole_from_unix_s(engine, MINUTE_S) is None:
        _begin(engine, REQUESTED, {MINUTE_S: 0, HOUR_S: 0})
    if whole_from_unix_s(engine, MINUTE_S, SAMPLED) is None:
        # Samples were removed with the requests of their time, and left no record.
        known_from = whole_from_unix_s(engine, MINUTE_S) or 0
        _begin(engine, SAMPLED, {MINUTE_S: known_from, HOUR_S: 0, DAY_S: known_from})


def _begin(engine: Engine, of: Rolled, whole: Mapping[int, int]) -> None:
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
        dialects.of(engine).put(connection, of.state, rows)
