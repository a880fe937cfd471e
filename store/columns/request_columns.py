"""Many requests as columns, with dictionaries for their labels.

The result equals that of `queries.request_table` and is faster for many rows, because no value
becomes a Python object on the way. How depends on the dialect (docs/decisions/027). If that way is
not available, the rows are read the slow way, and `slow_because` returns the reason.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Engine, func, select
from sqlalchemy.exc import DBAPIError

from store import dialects
from store.connections import reading
from store.errors import NotQuick
from store.queries import (
    Window,
    known_columns,
    request_schema,
    request_table,
    select_requests,
)
from store.schema import REQUESTS

FEW_ROWS: Final = 20_000
"""For fewer rows the plain query is faster than starting a reader."""

IDS: Final = ("trace_id", "span_id", "request_id")
"""Texts of which each row has its own: a dictionary of them would be larger than they are."""

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
    """The requests received in a window, in the order of receipt.

    While it is read, rows may come in: of those of the last seconds some may be missing.

    Args:
        engine: from `open_database`.
        window: of `received_unix_ns`.
        columns: those wanted, of `queries.REQUEST_COLUMNS`; None for all.
        equals: label → value; None picks the rows where the label is unknown.
        ended_after_unix_ns: as for `request_table`.

    Returns:
        A column each, in one or several chunks; texts but for `IDS` are dictionaries, one for
        all chunks of a column.

    Raises:
        ValueError: an unknown column or label.
        StoreUnavailable: the database does not answer.
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
        table = dialects.of(engine).read_columns(engine, questions, schema)
    except (NotQuick, DBAPIError):  # the plain query reports an outage
        table = request_table(
            engine,
            window,
            columns=fetched,
            equals=equals,
            ended_after_unix_ns=ended_after_unix_ns,
        )
    return _in_order(table.cast(schema)).unify_dictionaries().select(wanted)


def in_parts(engine: Engine, window: Window, most: int) -> list[Window]:
    """A window, cut evenly where it has more requests than are to be in memory at once."""
    with reading(engine) as connection:
        requests = connection.scalar(select(func.count()).where(*_inside(window))) or 0
    number = max(1, -(-requests // most))
    length_ns = window.to_unix_ns - window.from_unix_ns
    edges = [window.from_unix_ns + length_ns * each // number for each in range(number + 1)]
    return [Window(*each) for each in pairwise(edges)]


def slow_because(engine: Engine) -> str | None:
    """Why many rows of this database are read the slow way; None where they are not."""
    empty = Window(0, 0)
    try:
        dialects.of(engine).read_columns(
            engine, [select_requests([_RECEIVED], empty, _ALL)], request_schema([_RECEIVED])
        )
    except NotQuick as error:
        return str(error)
    except DBAPIError as error:
        return dialects.of(engine).reason(error)
    return None


def encoded_schema(schema: pa.Schema) -> pa.Schema:
    """With dictionaries for texts that many rows share."""
    shared = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        field.with_type(shared)
        if pa.types.is_string(field.type) and field.name not in IDS
        else field
        for field in schema
    )


def _parts(engine: Engine, window: Window, number: int) -> list[Window]:
    """A window in parts of about as many rows each; none where it has few rows in all."""
    received, inside = REQUESTS.c.received_unix_ns, _inside(window)
    some = select(received).where(*inside).limit(FEW_ROWS)
    with reading(engine) as connection:
        if (connection.scalar(select(func.count()).select_from(some.subquery())) or 0) < FEW_ROWS:
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
    """As they were received; they nearly always are, for the database reads by that index."""
    received = table[_RECEIVED].to_numpy()
    if (received[1:] >= received[:-1]).all():
        return table
    return table.take(pc.sort_indices(table, [(_RECEIVED, "ascending")]))
