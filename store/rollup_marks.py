"""Which buckets are to be made, and from where on what they are made of is whole.

The writer marks the minutes of its rows in the same transaction, so a row is either in its
minute's rollup or its minute is marked: who reads takes marked minutes from the rows. A mark
is a transaction's own, and who made a bucket takes away the marks that were there before it
read: a row that comes meanwhile brings another.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from secrets import randbits
from typing import Final

from sqlalchemy import Connection, Engine, and_, select

from store import dialects
from store.reaching import reading, writing
from store.rollup_tables import HOUR_S, MARKS, MINUTE_S, STATE
from store.schema import REQUESTS

SECOND_NS: Final = 10**9
_MINUTE_NS: Final = MINUTE_S * SECOND_NS
_RECEIVED: Final = REQUESTS.columns.keys().index("received_unix_ns")
_AT_ONCE: Final = 500
"""Marks named in one statement."""


def mark_minutes(connection: Connection, requests: Sequence[tuple[object, ...]]) -> None:
    """Mark the minutes that these rows, in their table's order, were received in."""
    minutes = {row[_RECEIVED] // _MINUTE_NS for row in requests}  # type: ignore[operator]
    mark(connection, MINUTE_S, [each * MINUTE_S for each in minutes])


def mark(connection: Connection, width_s: int, starts_unix_s: Iterable[int]) -> None:
    """Mark buckets."""
    token = randbits(63)
    rows = [(width_s, start, token) for start in sorted(starts_unix_s)]
    if rows:
        dialects.of(connection.engine).inserting(connection.engine, MARKS)(connection, rows)


def unmark(connection: Connection, width_s: int, start_unix_s: int, marks: Sequence[int]) -> int:
    """Take marks away; how many of them were still there."""
    remove = dialects.of(connection.engine).remove
    return sum(
        remove(
            connection,
            MARKS,
            and_(
                MARKS.c.width_s == width_s,
                MARKS.c.from_unix_s == start_unix_s,
                MARKS.c.token.in_(marks[first : first + _AT_ONCE]),
            ),
        )
        for first in range(0, len(marks), _AT_ONCE)
    )


def marked(engine: Engine, width_s: int) -> dict[int, list[int]]:
    """The marks of each bucket that has any, by its start, in order."""
    statement = select(MARKS.c.from_unix_s, MARKS.c.token).where(MARKS.c.width_s == width_s)
    found: dict[int, list[int]] = defaultdict(list)
    with reading(engine) as connection:
        for start, token in connection.execute(statement.order_by(MARKS.c.from_unix_s)):
            found[start].append(token)
    return dict(found)


def pending(engine: Engine, width_s: int, from_unix_s: int, to_unix_s: int) -> list[int]:
    """The starts of marked buckets in a stretch of time, in order."""
    statement = (
        select(MARKS.c.from_unix_s)
        .distinct()
        .where(
            MARKS.c.width_s == width_s,
            MARKS.c.from_unix_s >= from_unix_s,
            MARKS.c.from_unix_s < to_unix_s,
        )
    )
    with reading(engine) as connection:
        return sorted(connection.scalars(statement).all())


def whole_from_unix_s(engine: Engine, width_s: int) -> int | None:
    """From where on what buckets are made of is whole; None where none were begun."""
    statement = select(STATE.c.whole_from_unix_s).where(STATE.c.width_s == width_s)
    with reading(engine) as connection:
        found: int | None = connection.scalar(statement)
    return found


def no_longer_whole(engine: Engine, width_s: int, before_unix_s: int) -> None:
    """Say that what buckets before this instant are made of is about to go: they stay as they
    are."""
    start = -(-before_unix_s // width_s) * width_s
    known = whole_from_unix_s(engine, width_s)
    if known is not None and known < start:
        with writing(engine) as connection:
            row = {"width_s": width_s, "whole_from_unix_s": start}
            dialects.of(engine).put(connection, STATE, [row])


def begin(engine: Engine) -> None:
    """Have rollups made of the requests that were there before there were any."""
    if whole_from_unix_s(engine, MINUTE_S) is not None:
        return
    received = REQUESTS.c.received_unix_ns
    minute = received - received % _MINUTE_NS
    with writing(engine) as connection:
        starts = connection.scalars(select(minute.label("minute")).distinct().where(received >= 0))
        mark(connection, MINUTE_S, [each // SECOND_NS for each in starts])
        dialects.of(engine).put(
            connection,
            STATE,
            [{"width_s": width_s, "whole_from_unix_s": 0} for width_s in (MINUTE_S, HOUR_S)],
        )
