"""Counts per objective, kept so that a month is not counted anew each time.

A definition's digest is the key: an objective whose meaning changes has no counts yet, and
is counted again from the requests that are still there. What the numbers mean is `alerts/`'
affair; here they are kept, with the stretch of time that they are whole for.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Table,
    Text,
    func,
    literal,
    select,
    true,
)

from store import dialects
from store.reaching import reading, writing
from store.schema import METADATA, REQUESTS


@dataclass(frozen=True, slots=True)
class SloCount:
    """What became of the requests that ended in (until − bucket, until]."""

    until_unix_s: int
    good: int
    bad: int
    aborted: int
    client_error: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The stretch that counts are whole for: (from, until]."""

    from_unix_s: int
    until_unix_s: int


COUNTS = Table(
    "slo_counts",
    METADATA,
    Column("definition", Text, primary_key=True),
    *(
        Column(
            field.name,
            BigInteger,
            nullable=False,
            primary_key=field.name == "until_unix_s",
            autoincrement=False,
        )
        for field in fields(SloCount)
    ),
)
STRETCHES = Table(
    "slo_counted",
    METADATA,
    Column("definition", Text, primary_key=True),
    Column("from_unix_s", BigInteger, nullable=False),
    Column("until_unix_s", BigInteger, nullable=False),
)


def counted(engine: Engine, definition: str) -> Counted | None:
    """The stretch that was counted; None where nothing was."""
    with reading(engine) as connection:
        row = connection.execute(
            select(STRETCHES.c.from_unix_s, STRETCHES.c.until_unix_s).where(
                STRETCHES.c.definition == definition
            )
        ).one_or_none()
    return None if row is None else Counted(*row)


def read_counts(engine: Engine, definition: str, from_s: int, to_s: int) -> list[SloCount]:
    """The kept counts with from < until ≤ to, in order."""
    columns = [COUNTS.c[field.name] for field in fields(SloCount)]
    statement = (
        select(*columns)
        .where(
            COUNTS.c.definition == definition,
            COUNTS.c.until_unix_s > from_s,
            COUNTS.c.until_unix_s <= to_s,
        )
        .order_by(COUNTS.c.until_unix_s)
    )
    with reading(engine) as connection:
        return [SloCount(*row) for row in connection.execute(statement)]


def summed_counts(engine: Engine, definition: str, instants: Sequence[int]) -> list[SloCount]:
    """The kept counts between neighbouring instants, added up by the database.

    Args:
        engine: from `open_database`.
        definition: the digest of what was counted.
        instants: ascending, in unix seconds.

    Returns:
        Of each stretch (a, b] its counts, with b as the end of one bucket; empty ones left out.
    """
    total = [func.sum(COUNTS.c[field.name]) for field in fields(SloCount)[1:]]
    found = []
    with reading(engine) as connection:
        for start, end in pairwise(instants):
            row = connection.execute(
                select(*total).where(
                    COUNTS.c.definition == definition,
                    COUNTS.c.until_unix_s > start,
                    COUNTS.c.until_unix_s <= end,
                )
            ).one()
            if any(row):
                found.append(SloCount(end, *(int(each or 0) for each in row)))
    return found


def stepped_counts(
    engine: Engine, definition: str, from_s: int, to_s: int, step_s: int
) -> list[SloCount]:
    """The kept counts in (from, to], added up by steps of so long that begin at `from`."""
    place = COUNTS.c.until_unix_s - literal(from_s + 1)
    first = (COUNTS.c.until_unix_s - place % literal(step_s)).label("first")
    total = [func.sum(COUNTS.c[field.name]) for field in fields(SloCount)[1:]]
    statement = (
        select(first, *total)
        .where(
            COUNTS.c.definition == definition,
            COUNTS.c.until_unix_s > from_s,
            COUNTS.c.until_unix_s <= to_s,
        )
        .group_by(first)
        .order_by(first)
    )
    with reading(engine) as connection:
        rows = connection.execute(statement)
        return [SloCount(int(row[0]) - 1 + step_s, *(int(n) for n in row[1:])) for row in rows]


def keep_counts(
    engine: Engine, definition: str, counts: Sequence[SloCount], stretch: Counted
) -> None:
    """Keep counts, in place of what was there of the same instants.

    Args:
        engine: from `open_database`.
        definition: the digest of what was counted.
        counts: buckets; one in which nothing happened may be left out.
        stretch: all that is counted from now on, these and those before.
    """
    put = dialects.of(engine).put
    with writing(engine) as connection:
        if counts:
            put(connection, COUNTS, [{"definition": definition, **asdict(c)} for c in counts])
        put(connection, STRETCHES, [{"definition": definition, **asdict(stretch)}])


def recount_from(engine: Engine, definition: str, from_s: int) -> None:
    """Requests came in that ended after this instant: what was counted since is no longer whole."""
    kept = counted(engine, definition)
    if kept is not None and from_s < kept.until_unix_s:
        keep_counts(engine, definition, [], Counted(min(kept.from_unix_s, from_s), from_s))


def forget_counts(engine: Engine) -> None:
    """Drop all counts: they are counted again from the requests that are there."""
    remove = dialects.of(engine).remove
    with writing(engine) as connection:
        remove(connection, COUNTS, true())
        remove(connection, STRETCHES, true())


def oldest_request_unix_ns(engine: Engine) -> int | None:
    """When the earliest request that is kept was received; None where there is none."""
    with reading(engine) as connection:
        oldest: int | None = connection.scalar(select(func.min(REQUESTS.c.received_unix_ns)))
    return oldest
