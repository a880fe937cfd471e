"""Store request counts per objective, so that an evaluation need not count the requests of a whole
month again.

The key is the digest of an objective's definition. If the definition changes, the requests are
counted again. Simulated requests have a separate table, so that a simulation can be deleted.
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
from store.schema import STATE_METADATA
from store.state import state_of


@dataclass(frozen=True, slots=True)
class SloCount:
    """Counts of the requests that ended in (`until_unix_s` − bucket width, `until_unix_s`]."""

    until_unix_s: int
    good: int
    bad: int
    aborted: int
    client_error: int
    unknown: int
    simulated: bool = False
    group: str = ""


NUMBERS: Final = tuple(field.name for field in fields(SloCount)[1:-2])
_COLUMNS: Final = ("until_unix_s", *NUMBERS)
PROBE_DEFINITIONS: Final = "probes-"
"""Prefix of the digests of objectives that count probes."""


@dataclass(frozen=True, slots=True)
class CountedRange:
    """The time range (from, until] for which counts are complete."""

    from_unix_s: int
    until_unix_s: int


def _counts_table(name: str) -> Table:
    return Table(
        name,
        STATE_METADATA,
        Column("definition", Text, primary_key=True),
        Column("until_unix_s", BigInteger, primary_key=True, autoincrement=False),
        *(Column(number, BigInteger, nullable=False, autoincrement=False) for number in NUMBERS),
    )


COUNTS = _counts_table("slo_counts")
SIMULATED_COUNTS = _counts_table("slo_simulated_counts")
_TABLES: Final = ((COUNTS, False), (SIMULATED_COUNTS, True))
COUNTED_RANGES = Table(
    "slo_counted",
    STATE_METADATA,
    Column("definition", Text, primary_key=True),
    Column("from_unix_s", BigInteger, nullable=False),
    Column("until_unix_s", BigInteger, nullable=False),
)


def read_counted_range(engine: Engine, definition: str) -> CountedRange | None:
    """The time range whose counts are complete, or None."""
    with reading(state_of(engine)) as connection:
        return _counted_range(connection, definition, locked=False)


def earliest_counted_s(engine: Engine, *, probes: bool) -> int | None:
    """The start of the earliest stored counts in unix seconds, for probes or for requests."""
    of_probes = COUNTED_RANGES.c.definition.startswith(PROBE_DEFINITIONS)
    earliest = select(func.min(COUNTED_RANGES.c.from_unix_s))
    with reading(state_of(engine)) as connection:
        found: int | None = connection.scalar(earliest.where(of_probes if probes else ~of_probes))
    return found


def read_counts(engine: Engine, definition: str, from_s: int, to_s: int) -> list[SloCount]:
    """The counts whose buckets end in (from, to], in order of time. Real and simulated requests
    have separate counts."""
    found = []
    with reading(state_of(engine)) as connection:
        for table, simulated in _TABLES:
            columns = [table.c[name] for name in _COLUMNS]
            statement = select(*columns).where(_within(table, definition, from_s, to_s))
            rows = connection.execute(statement)
            found += [_count(row[0], row[1:], simulated) for row in rows]
    return sorted(found, key=_order)


def summed_counts(engine: Engine, definition: str, instants: Sequence[int]) -> list[SloCount]:
    """Sum the counts of each range (a, b] between successive instants. The instants are ascending
    unix seconds. `until_unix_s` is b. Empty ranges are left out."""
    found = []
    with reading(state_of(engine)) as connection:
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
    """The counts in (from, to], summed over intervals of `step_s` seconds."""
    found = []
    with reading(state_of(engine)) as connection:
        for table, simulated in _TABLES:
            place = table.c.until_unix_s - literal(from_s + 1)
            first = (table.c.until_unix_s - place % literal(step_s)).label("first")
            total = [func.sum(table.c[name]) for name in NUMBERS]
            which = _within(table, definition, from_s, to_s)
            for row in connection.execute(select(first, *total).where(which).group_by(first)):
                found.append(_count(int(row[0]) - 1 + step_s, row[1:], simulated))
    return sorted(found, key=_order)


def store_counts(
    engine: Engine,
    definition: str,
    counts: Sequence[SloCount],
    counted_range: CountedRange,
    since: CountedRange | None = None,
    groups: Sequence[str] = ("",),
) -> bool:
    """Replace the counts of a time range.

    Args:
        counts: per bucket. Empty buckets may be left out.
        counted_range: the range whose counts are complete after this call.
        since: the range that was stored when this process began to count. If None, changes by other
            processes are not detected.
        groups: keys of the counted groups.

    Returns: False if a different process has changed the stored range. Nothing is stored then.
    """
    state = state_of(engine)
    remove, upsert = dialects.of(state).remove, dialects.of(state).upsert
    with writing(state) as connection:
        counted_ranges = [counted_range]
        if since is not None:
            known = _counted_range(connection, definition + groups[0], locked=True)
            if known is not None and known != since:
                return False
            for table, _ in _TABLES:
                for group in groups:
                    of_group = definition + group
                    old = _within(table, of_group, since.until_unix_s, counted_range.until_unix_s)
                    remove(connection, table, old)
        for group in groups[1:]:
            known = _counted_range(connection, definition + group, locked=True)
            counted_s = counted_range.until_unix_s if since is None else since.until_unix_s
            whole = known is not None and known.until_unix_s >= counted_s
            from_s = known.from_unix_s if known is not None and whole else counted_s
            counted_ranges.append(
                CountedRange(min(from_s, counted_range.until_unix_s), counted_range.until_unix_s)
            )
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
                upsert(connection, table, rows)
        upsert(
            connection,
            COUNTED_RANGES,
            [
                {"definition": definition + group, **asdict(each)}
                for group, each in zip(groups, counted_ranges, strict=True)
            ],
        )
    return True


def mark_counts_incomplete(
    engine: Engine, from_s: int | None, marks: Sequence[Mark], probes_from_s: int | None = None
) -> None:
    """Record that all counts after a time are incomplete, and delete the given marks (`slo_marks`).

    With a separate state database, a second transaction deletes the marks. If the process crashes
    before the second transaction, the marked time buckets are counted again.

    Args:
        from_s: unix seconds. All new requests ended after this time. None means that there are no
            new requests.
        probes_from_s: the same for probes.
    """
    of_probes = COUNTED_RANGES.c.definition.startswith(PROBE_DEFINITIONS)
    state = state_of(engine)
    with writing(state) as connection:
        rows = [
            {
                "definition": row.definition,
                "from_unix_s": min(row.from_unix_s, at_s),
                "until_unix_s": at_s,
            }
            for at_s, kind in ((from_s, ~of_probes), (probes_from_s, of_probes))
            if at_s is not None
            for row in connection.execute(
                _locked(
                    state, select(COUNTED_RANGES).where(kind, COUNTED_RANGES.c.until_unix_s > at_s)
                )
            )
        ]
        if rows:
            dialects.of(state).upsert(connection, COUNTED_RANGES, rows)
        if state is engine:
            remove_marks(connection, marks)
    if state is not engine:
        with writing(engine) as connection:
            remove_marks(connection, marks)


def remove_simulated_counts(connection: Connection) -> None:
    """Delete the counts of simulated requests.

    An objective's time range then begins at its earliest count of real requests.
    """
    remove, upsert = dialects.of(connection.engine).remove, dialects.of(connection.engine).upsert
    earliest = select(SIMULATED_COUNTS.c.definition, func.min(SIMULATED_COUNTS.c.until_unix_s))
    for definition, first_s in connection.execute(
        earliest.group_by(SIMULATED_COUNTS.c.definition)
    ).all():
        real_s = connection.scalar(
            select(func.min(COUNTS.c.until_unix_s)).where(COUNTS.c.definition == definition)
        )
        known = _counted_range(connection, definition, locked=True)
        if not real_s:
            remove(connection, COUNTED_RANGES, COUNTED_RANGES.c.definition == definition)
        elif known is not None and first_s < real_s:
            row = asdict(CountedRange(max(known.from_unix_s, real_s - STEP_S), known.until_unix_s))
            upsert(connection, COUNTED_RANGES, [{"definition": definition, **row}])
    # Remove ranges without counts, because their start may be the time of a simulated request.
    remove(
        connection,
        COUNTED_RANGES,
        COUNTED_RANGES.c.from_unix_s == COUNTED_RANGES.c.until_unix_s,
    )
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


def _counted_range(connection: Connection, definition: str, *, locked: bool) -> CountedRange | None:
    statement: Select[*tuple[Any, ...]] = select(
        COUNTED_RANGES.c.from_unix_s, COUNTED_RANGES.c.until_unix_s
    ).where(COUNTED_RANGES.c.definition == definition)
    if locked:
        statement = _locked(connection.engine, statement)
    row = connection.execute(statement).one_or_none()
    return None if row is None else CountedRange(*row)


def _locked(engine: Engine, statement: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    return statement if dialects.of(engine).ADDITIVE else statement.with_for_update()
