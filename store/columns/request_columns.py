"""Read many requests as columns, with dictionary encoding for the labels.

The result equals the result of `queries.request_table`, but no value becomes a Python object. Each
database has its own method (docs/decisions/027). If the method is not available,
`queries.request_table` is used, and `slow_because` returns the reason.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Connection, Engine, Select, func, select
from sqlalchemy.exc import DBAPIError

from store import dialects
from store.connections import read_columns, reading
from store.errors import NotQuick
from store.queries import known_columns, request_schema, request_table, select_requests
from store.schema import REQUESTS
from telemetry.window import Window

FEW_ROWS: Final = 20_000
"""Below this number of rows, `queries.request_table` is faster."""

IDS: Final = ("trace_id", "span_id", "request_id", "prefix_ladder")
"""Text columns without a dictionary: each row has a different value."""

_RECEIVED: Final = "received_unix_ns"
_ALL: Mapping[str, str | None] = MappingProxyType({})


def request_columns(
    engine: Engine,
    window: Window,
    columns: Sequence[str] | None = None,
    equals: Mapping[str, str | None] = _ALL,
    *,
    ended_after_unix_ns: int | None = None,
) -> pa.Table:
    """Return the requests received in a window, in the order of receipt. See
    `queries.request_table`.

    Rows written during the query may be missing.

    Returns: a table. Each text column except `IDS` is dictionary-encoded, with one dictionary for
    all chunks.
    """
    wanted = list(known_columns(columns))
    fetched = [*wanted, *({_RECEIVED} - set(wanted))]
    schema = encoded_schema(request_schema(fetched))
    try:
        parts = _parts(engine, window, dialects.of(engine).READERS)
        if not parts:
            raise NotQuick("there are few rows")
        questions = [
            select_requests(
                fetched, window, equals, part=part, ended_after_unix_ns=ended_after_unix_ns
            )
            for part in parts
        ]
        table = read_columns(engine, questions, schema)
    except (NotQuick, DBAPIError):
        table = request_table(
            engine,
            window,
            columns=fetched,
            equals=equals,
            ended_after_unix_ns=ended_after_unix_ns,
        )
    return _in_order(table.cast(schema)).unify_dictionaries().select(wanted)


def in_parts(engine: Engine, window: Window, most: int) -> list[Window]:
    """Split a window into equal parts if it has more than `most` requests."""
    with reading(engine) as connection:
        requests = connection.scalar(select(func.count()).where(*_inside(window))) or 0
    number = max(1, -(-requests // most))
    length_ns = window.to_unix_ns - window.from_unix_ns
    edges = [window.from_unix_ns + length_ns * each // number for each in range(number + 1)]
    return [Window(*each) for each in pairwise(edges)]


def slow_because(engine: Engine) -> str | None:
    """Return why the slower query is used for this database, or None."""
    empty = Window(0, 0)
    try:
        read_columns(
            engine, [select_requests([_RECEIVED], empty, _ALL)], request_schema([_RECEIVED])
        )
    except NotQuick as error:
        return str(error)
    except DBAPIError as error:
        return dialects.of(engine).reason(error)
    return None


def encoded_schema(schema: pa.Schema) -> pa.Schema:
    """The schema, with dictionaries for text columns except `IDS`."""
    shared = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        field.with_type(shared)
        if pa.types.is_string(field.type) and field.name not in IDS
        else field
        for field in schema
    )


def has_few_rows(connection: Connection, rows: Select[Any]) -> bool:
    """Whether a query has so few rows that `queries.request_table` is faster."""
    some = rows.limit(FEW_ROWS).subquery()
    return (connection.scalar(select(func.count()).select_from(some)) or 0) < FEW_ROWS


def _parts(engine: Engine, window: Window, number: int) -> list[Window]:
    received, inside = REQUESTS.c.received_unix_ns, _inside(window)
    with reading(engine) as connection:
        if has_few_rows(connection, select(received).where(*inside)):
            return []
        rows = connection.scalar(select(func.count()).where(*inside)) or 0 if number > 1 else 0
        bounds = [
            connection.scalar(
                select(received)
                .where(*inside)
                .order_by(received)
                .limit(1)
                .offset(rows * each // number)
            )
            for each in range(1, number)
        ]
    inner = sorted({each for each in bounds if each is not None} - {window.from_unix_ns})
    edges = [window.from_unix_ns, *inner, window.to_unix_ns]
    return [Window(start, end) for start, end in pairwise(edges)]


def _inside(window: Window) -> tuple[ColumnElement[bool], ...]:
    received = REQUESTS.c.received_unix_ns
    return received >= window.from_unix_ns, received < window.to_unix_ns


def _in_order(table: pa.Table) -> pa.Table:
    """Sort rows by time of receipt. Rows from an index scan usually are sorted already."""
    received = table[_RECEIVED].to_numpy()
    if (received[1:] >= received[:-1]).all():
        return table
    return table.take(pc.sort_indices(table, [(_RECEIVED, "ascending")]))
