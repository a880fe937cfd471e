"""Read the cold starts of engines: the parts of the time until a server was ready."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from sqlalchemy import ColumnElement, Engine, func, select

from store.connections import reading
from store.schema import COLD_STARTS
from telemetry.cold_starts import ColdStart
from telemetry.starts import MAX_LOADING_S

MAX_STARTS: Final = 1_000
"""Maximum number of starts to read. The newest start of each engine is read first, then the second
newest, and so on. So a server in a crash loop does not hide the starts of other servers."""
_ALL: Final[Mapping[str, str | None]] = MappingProxyType({})


def cold_starts_between(engine: Engine, from_unix_ns: int, to_unix_ns: int) -> list[ColdStart]:
    """The starts whose server was ready in [from, to), without failed starts. See
    `all_starts_between`."""
    return _starts(engine, from_unix_ns, to_unix_ns, COLD_STARTS.c.reached.is_(None))


def all_starts_between(
    engine: Engine, from_unix_ns: int, to_unix_ns: int, equals: Mapping[str, str | None] = _ALL
) -> list[ColdStart]:
    """The starts of [from, to), including failed starts, in order of time.

    Args:
        equals: required values of text columns. None selects starts without the value.
    """
    columns = COLD_STARTS.c
    return _starts(
        engine,
        from_unix_ns,
        to_unix_ns,
        *(columns[name] == value for name, value in equals.items()),
    )


def next_start_unix_ns(engine: Engine, start: ColdStart) -> int | None:
    """When the next start of the same engine began, or None. Failed starts are included."""
    columns = COLD_STARTS.c
    statement = select(func.min(columns.at_unix_ns)).where(
        columns.replica == start.replica,
        columns.engine == start.engine,
        columns.at_unix_ns >= start.ready_unix_ns,
    )
    with reading(engine) as connection:
        # ClickHouse returns 0 instead of NULL.
        return connection.scalar(statement) or None


def _starts(
    engine: Engine, from_unix_ns: int, to_unix_ns: int, *conditions: ColumnElement[bool]
) -> list[ColdStart]:
    columns = COLD_STARTS.c
    place = func.row_number().over(
        partition_by=(columns.replica, columns.engine), order_by=columns.at_unix_ns.desc()
    )
    numbered = (
        select(COLD_STARTS, place.label("place"))
        .where(
            columns.at_unix_ns >= max(from_unix_ns - round(MAX_LOADING_S * 1e9), 0),
            columns.at_unix_ns < to_unix_ns,
            *conditions,
        )
        .subquery()
    )
    statement = (
        select(*(numbered.c[column.name] for column in columns))
        .order_by(numbered.c.place, numbered.c.at_unix_ns.desc())
        .limit(MAX_STARTS)
    )
    with reading(engine) as connection:
        rows = connection.execute(statement).all()
    in_order = sorted(rows, key=lambda row: int(row.at_unix_ns))
    found = _longest_of_each(ColdStart(**row._mapping) for row in in_order)
    return [each for each in found if from_unix_ns <= each.ready_unix_ns < to_unix_ns]


def _longest_of_each(found: Iterable[ColdStart]) -> list[ColdStart]:
    """Return the longest report of each start, because several API servers can report the same
    start."""
    longest: dict[tuple[str, str], ColdStart] = {}
    for each in found:
        key = each.trace_id, each.span_id
        known = longest.get(key)
        if known is None or each.length_s > known.length_s:
            longest[key] = each
    return list(longest.values())
