"""Stored counts per objective, so that a month is not counted again each time.

The key is the digest of an objective's definition: an objective whose meaning changes has no counts
yet, and is counted again from the requests that still exist. `alerts/` defines the numbers; this
module stores them with the time range that they cover. Simulated requests are counted in a table of
their own, so that a simulation can be deleted without touching the rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Select,
    Table,
    Text,
    and_,
    func,
    literal,
    select,
    true,
)

from store import dialects
from store.alerting.slo_marks import STEP_S, Mark, remove_marks
from store.connections import reading, writing
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
    simulated: bool = False
    """Whether these are a simulation's requests; a real server's otherwise."""
    group: str = ""
    """Which group of requests these are, where an objective has several."""


NUMBERS: Final = tuple(field.name for field in fields(SloCount)[1:-2])
_COLUMNS: Final = ("until_unix_s", *NUMBERS)


@dataclass(frozen=True, slots=True)
class Counted:
    """The stretch that counts are whole for: (from, until]."""

    from_unix_s: int
    until_unix_s: int


def _counts_table(name: str) -> Table:
    return Table(
        name,
        METADATA,
        Column("definition", Text, primary_key=True),
        Column("until_unix_s", BigInteger, primary_key=True, autoincrement=False),
        *(Column(number, BigInteger, nullable=False, autoincrement=False) for number in NUMBERS),
    )


COUNTS = _counts_table("slo_counts")
SIMULATED_COUNTS = _counts_table("slo_simulated_counts")
_TABLES: Final = ((COUNTS, False), (SIMULATED_COUNTS, True))
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
        return _stretch(connection, definition, locked=False)


def read_counts(engine: Engine, definition: str, from_s: int, to_s: int) -> list[SloCount]:
    """The kept counts with from < until ≤ to, in order; simulated ones apart."""
    found = []
    with reading(engine) as connection:
        for table, simulated in _TABLES:
            columns = [table.c[name] for name in _COLUMNS]
            statement = select(*columns).where(_within(table, definition, from_s, to_s))
            rows = connection.execute(statement)
            found += [_count(row[0], row[1:], simulated) for row in rows]
    return sorted(found, key=_order)


def summed_counts(engine: Engine, definition: str, instants: Sequence[int]) -> list[SloCount]:
    """The kept counts between neighbouring instants, added up by the database.

    Args:
        engine: from `open_database`.
        definition: the digest of what was counted.
        instants: ascending, in unix seconds.

    Returns:
        The counts of each stretch (a, b], with b as the end of one bucket; empty ones left out,
        simulated ones apart.
    """
    found = []
    with reading(engine) as connection:
        for table, simulated in _TABLES:
            total = [func.sum(table.c[name]) for name in NUMBERS]
            for start, end in pairwise(instants):
                which = _within(table, definition, start, end)
                row = connection.execute(select(*total).where(which)).one()
                if any(row):
                    found.append(_count(end, row, simulated))
    return sorted(found, key=_order)


def stepped_counts(
    engine: Engine, definition: str, from_s: int, to_s: int, step_s: int
) -> list[SloCount]:
    """The kept counts in (from, to], added up by steps of `step_s` that begin at `from`."""
    found = []
    with reading(engine) as connection:
        for table, simulated in _TABLES:
            place = table.c.until_unix_s - literal(from_s + 1)
            first = (table.c.until_unix_s - place % literal(step_s)).label("first")
            total = [func.sum(table.c[name]) for name in NUMBERS]
            which = _within(table, definition, from_s, to_s)
            for row in connection.execute(select(first, *total).where(which).group_by(first)):
                found.append(_count(int(row[0]) - 1 + step_s, row[1:], simulated))
    return sorted(found, key=_order)


def keep_counts(
    engine: Engine,
    definition: str,
    counts: Sequence[SloCount],
    stretch: Counted,
    since: Counted | None = None,
    groups: Sequence[str] = ("",),
) -> bool:
    """Keep counts, in place of what was there of the same time.

    Args:
        engine: from `open_database`.
        definition: the digest of what was counted.
        counts: buckets; one in which nothing happened may be left out.
        stretch: all that is counted from now on, these and those before; of the first group.
        since: that stretch as it was when counting began; None for whatever it is.
        groups: those that were counted. Each is kept under the definition with its key, and from
            its own start on.

    Returns:
        Whether they were kept: False if another process changed the stretch meanwhile, because
        these counts may lack what it declared incomplete.
    """
    remove, put = dialects.of(engine).remove, dialects.of(engine).put
    with writing(engine) as connection:
        stretches = [stretch]
        if since is not None:
            known = _stretch(connection, definition + groups[0], locked=True)
            if known is not None and known != since:
                return False
            for table, _ in _TABLES:
                for group in groups:
                    of_group = definition + group
                    old = _within(table, of_group, since.until_unix_s, stretch.until_unix_s)
                    remove(connection, table, old)
        for group in groups[1:]:
            known = _stretch(connection, definition + group, locked=True)
            # If another evaluator did not count this group, it is counted from now on.
            counted_s = stretch.until_unix_s if since is None else since.until_unix_s
            whole = known is not None and known.until_unix_s >= counted_s
            from_s = known.from_unix_s if known is not None and whole else counted_s
            stretches.append(Counted(min(from_s, stretch.until_unix_s), stretch.until_unix_s))
        for table, simulated in _TABLES:
            rows = [
                {
                    "definition": definition + each.group,
                    **{name: getattr(each, name) for name in _COLUMNS},
                }
                for each in counts
                if each.simulated == simulated
            ]
            if rows:
                put(connection, table, rows)
        put(
            connection,
            STRETCHES,
            [
                {"definition": definition + group, **asdict(each)}
                for group, each in zip(groups, stretches, strict=True)
            ],
        )
    return True


def count_again(engine: Engine, from_s: int, marks: Sequence[Mark]) -> None:
    """Declare all counts since an instant incomplete, and remove the marks that caused it.

    In one transaction: whatever stops us, either the marks or the shorter stretches are kept. Also
    of objectives that are not in force: they may be again.

    Args:
        engine: from `open_database`.
        from_s: requests came that ended after this instant.
        marks: those that were read.
    """
    longer = select(STRETCHES).where(STRETCHES.c.until_unix_s > from_s)
    with writing(engine) as connection:
        rows = [
            {
                "definition": row.definition,
                "from_unix_s": min(row.from_unix_s, from_s),
                "until_unix_s": from_s,
            }
            for row in connection.execute(_locked(engine, longer))
        ]
        if rows:
            dialects.of(engine).put(connection, STRETCHES, rows)
        remove_marks(connection, marks)


def remove_simulated_counts(connection: Connection) -> None:
    """Delete the counts of simulated requests, and end the stretches that only they began."""
    remove, put = dialects.of(connection.engine).remove, dialects.of(connection.engine).put
    earliest = select(SIMULATED_COUNTS.c.definition, func.min(SIMULATED_COUNTS.c.until_unix_s))
    for definition, first_s in connection.execute(
        earliest.group_by(SIMULATED_COUNTS.c.definition)
    ).all():
        real_s = connection.scalar(
            select(func.min(COUNTS.c.until_unix_s)).where(COUNTS.c.definition == definition)
        )
        known = _stretch(connection, definition, locked=True)
        if not real_s:
            remove(connection, STRETCHES, STRETCHES.c.definition == definition)
        elif known is not None and first_s < real_s:
            row = asdict(Counted(max(known.from_unix_s, real_s - STEP_S), known.until_unix_s))
            put(connection, STRETCHES, [{"definition": definition, **row}])
    remove(connection, SIMULATED_COUNTS, true())


def _within(table: Table, definition: str, from_s: int, to_s: int) -> ColumnElement[bool]:
    return and_(
        table.c.definition == definition,
        table.c.until_unix_s > from_s,
        table.c.until_unix_s <= to_s,
    )


def _count(until_s: int, numbers: Iterable[Any], simulated: bool) -> SloCount:
    values = [int(each or 0) for each in numbers]
    good, bad, aborted, client_error, unknown = values  # the order of `NUMBERS`
    return SloCount(until_s, good, bad, aborted, client_error, unknown, simulated)


def _order(count: SloCount) -> tuple[int, bool]:
    return count.until_unix_s, count.simulated


def _stretch(connection: Connection, definition: str, *, locked: bool) -> Counted | None:
    statement: Select[*tuple[Any, ...]] = select(
        STRETCHES.c.from_unix_s, STRETCHES.c.until_unix_s
    ).where(STRETCHES.c.definition == definition)
    if locked:
        statement = _locked(connection.engine, statement)
    row = connection.execute(statement).one_or_none()
    return None if row is None else Counted(*row)


def _locked(engine: Engine, statement: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """Lock the selected rows until the transaction ends, where the database has such locks."""
    # ClickHouse has no transactions.
    return statement if dialects.of(engine).ADDITIVE else statement.with_for_update()


def oldest_request_unix_ns(engine: Engine) -> int | None:
    """When the earliest request that is kept was received; None where there is none."""
    with reading(engine) as connection:
        oldest: int | None = connection.scalar(select(func.min(REQUESTS.c.received_unix_ns)))
    return oldest
