"""Counts per objective, kept so that a month is not counted anew each time.

A definition's digest is the key: an objective whose meaning changes has no counts yet, and
is counted again from the requests that are still there. What the numbers mean is `alerts/`'
affair; here they are kept, with the stretch of time that they are whole for.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    MetaData,
    Table,
    Text,
    delete,
    func,
    inspect,
    select,
)
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DatabaseError

from store.errors import StoreUnavailable
from store.schema import REQUESTS


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


_METADATA = MetaData()
"""Apart from the other tables': these may be dropped and counted again, whatever the version."""

COUNTS = Table(
    "slo_counts",
    _METADATA,
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
    _METADATA,
    Column("definition", Text, primary_key=True),
    Column("from_unix_s", BigInteger, nullable=False),
    Column("until_unix_s", BigInteger, nullable=False),
)


def counted(engine: Engine, definition: str) -> Counted | None:
    """The stretch that was counted; None where nothing was."""
    if not _there(engine):
        return None
    try:
        with engine.connect() as connection:
            row = connection.execute(
                select(STRETCHES.c.from_unix_s, STRETCHES.c.until_unix_s).where(
                    STRETCHES.c.definition == definition
                )
            ).one_or_none()
    except DatabaseError as error:
        raise StoreUnavailable(f"the database cannot be read: {error.orig}") from error
    return None if row is None else Counted(*row)


def read_counts(engine: Engine, definition: str, from_s: int, to_s: int) -> list[SloCount]:
    """The kept counts with from < until ≤ to, in order."""
    if not _there(engine):
        return []
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
    try:
        with engine.connect() as connection:
            return [SloCount(*row) for row in connection.execute(statement)]
    except DatabaseError as error:
        raise StoreUnavailable(f"the database cannot be read: {error.orig}") from error


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
    _make(engine)
    names = [field.name for field in fields(SloCount)]
    rows = [{"definition": definition, **dict(zip(names, astuple(c), strict=True))} for c in counts]
    put = insert(COUNTS)
    mark = insert(STRETCHES).values(
        definition=definition, from_unix_s=stretch.from_unix_s, until_unix_s=stretch.until_unix_s
    )
    try:
        with engine.begin() as connection:
            if rows:
                connection.execute(
                    put.on_conflict_do_update(
                        index_elements=["definition", "until_unix_s"],
                        set_={name: put.excluded[name] for name in names[1:]},
                    ),
                    rows,
                )
            connection.execute(
                mark.on_conflict_do_update(
                    index_elements=["definition"],
                    set_={
                        "from_unix_s": mark.excluded.from_unix_s,
                        "until_unix_s": mark.excluded.until_unix_s,
                    },
                )
            )
    except DatabaseError as error:
        raise StoreUnavailable(f"the database cannot be written: {error.orig}") from error


def recount_from(engine: Engine, definition: str, from_s: int) -> None:
    """Requests came in that ended after this instant: what was counted since is no longer whole."""
    kept = counted(engine, definition)
    if kept is not None and from_s < kept.until_unix_s:
        keep_counts(engine, definition, [], Counted(min(kept.from_unix_s, from_s), from_s))


def forget_counts(engine: Engine) -> None:
    """Drop all counts: they are counted again from the requests that are there."""
    if _there(engine):
        with engine.begin() as connection:
            connection.execute(delete(COUNTS))
            connection.execute(delete(STRETCHES))


def oldest_request_unix_ns(engine: Engine) -> int | None:
    """When the earliest request that is kept was received; None where there is none."""
    try:
        with engine.connect() as connection:
            oldest: int | None = connection.scalar(select(func.min(REQUESTS.c.received_unix_ns)))
    except DatabaseError as error:
        raise StoreUnavailable(f"the database cannot be read: {error.orig}") from error
    return oldest


def _there(engine: Engine) -> bool:
    return inspect(engine).has_table(STRETCHES.name)


def _make(engine: Engine) -> None:
    """These tables came after the first databases, and are made where they are missing."""
    if not _there(engine):
        _METADATA.create_all(engine)
