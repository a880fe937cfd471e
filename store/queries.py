"""Query a time window, and return Arrow tables.

Values are bound parameters, and names are checked against the schema, so a caller's text never
becomes SQL.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from sqlalchemy import (
    ColumnElement,
    Engine,
    Select,
    Table,
    and_,
    case,
    exists,
    func,
    literal,
    select,
)

from store.connections import reading
from store.dialects.bulk import IN_BULK
from store.requests.best_source import counts
from store.schema import GPUS, REQUESTS, SAMPLES, arrow_type
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.labels import REQUEST_LABELS, SAMPLE_LABELS, labels_of, malformed
from telemetry.requests import PARTS, RequestTimeline, Source
from telemetry.window import Window

BATCH_ROWS = 1_000
"""Number of rows to fetch at a time. Larger batches make long reads a third slower."""

_ALL: Mapping[str, str | None] = MappingProxyType({})
_NOT_EXACT_NS = 10**6

DERIVED = ("tpot_s", *PARTS)
"""Columns that are computed from other columns. For example, `stall_s` is `prefill_stall_s` +
`decode_stall_s`."""

REQUEST_COLUMNS = (*REQUESTS.columns.keys(), *DERIVED)
SAMPLE_COLUMNS = tuple(SAMPLES.columns.keys())
GPU_COLUMNS = tuple(GPUS.columns.keys())


def request_table(
    engine: Engine,
    window: Window,
    *,
    equals: Mapping[str, str | None] = _ALL,
    columns: Sequence[str] | None = None,
    order_by: str | None = None,
    limit: int | None = None,
    ended_after_unix_ns: int | None = None,
    which: ColumnElement[bool] | None = None,
) -> pa.Table:
    """The requests received in a window.

    Args:
        window: range of `received_unix_ns`.
        equals: required labels. None selects rows without the label. The prober's requests are left
            out, unless `equals` selects their tenant or an id.
        columns: some of `REQUEST_COLUMNS`, or None for all.
        order_by: a column, "-column" for descending order, or None for the order of receipt. Rows
            with equal values are in the order of receipt. Unknown values come last.
        ended_after_unix_ns: select only requests that ended later. The database rounds times by up
            to a millisecond.
        which: the condition that selects one of a request's rows. The default is
            `store.requests.best_source.counts`.

    Raises:
        ValueError: a column or label is unknown, or the limit is negative.
    """
    wanted = known_columns(columns)
    statement = select_requests(
        wanted, window, equals, ended_after_unix_ns=ended_after_unix_ns, which=which
    )
    if order_by is not None:
        (name,) = _check_names([order_by.removeprefix("-")], REQUEST_COLUMNS)
        key = _request_column(name)
        statement = statement.order_by(
            (key.desc() if order_by.startswith("-") else key.asc()).nulls_last()
        )
    statement = statement.order_by(REQUESTS.c.received_unix_ns)
    if limit is not None:
        if limit < 0:
            raise ValueError(f"limit must be 0 or more, not {limit}")
        statement = statement.limit(limit)
    return fetched(engine, statement, request_schema(wanted))


def has_value(
    engine: Engine, window: Window, column: str, equals: Mapping[str, str | None] = _ALL
) -> bool:
    """Return whether a request of a window has a value in a column. See `request_table`."""
    (name,) = _check_names([column], REQUEST_COLUMNS)
    statement = select_requests([name], window, equals)
    with reading(engine) as connection:
        found = connection.execute(statement.where(_request_column(name).is_not(None)).limit(1))
        return found.first() is not None


def known_columns(given: Sequence[str] | None) -> Sequence[str]:
    """Check the given columns and return them. For None, return all columns."""
    return _check_names(given, REQUEST_COLUMNS)


def select_requests(
    wanted: Sequence[str],
    window: Window,
    equals: Mapping[str, str | None],
    *,
    part: Window | None = None,
    ended_after_unix_ns: int | None = None,
    which: ColumnElement[bool] | None = None,
) -> Select[Any]:
    """Build the query for requests in a window or in a part of it, unordered. The best row of a
    request is chosen among the rows of the whole window. See `request_table`."""
    if which is None:
        which = counts(window.from_unix_ns, window.to_unix_ns, equals)
    statement = select(*(_request_column(name) for name in wanted)).where(
        _in(part or window, REQUESTS.c.received_unix_ns),
        which,
        *_conditions(REQUESTS, equals, REQUEST_LABELS),
    )
    if ended_after_unix_ns is None:
        return statement
    return statement.where(
        REQUESTS.c.e2e_s * 1e9 > ended_after_unix_ns - _NOT_EXACT_NS - REQUESTS.c.received_unix_ns
    )


def request_schema(wanted: Sequence[str]) -> pa.Schema:
    """The Arrow schema of columns of requests."""
    return pa.schema(
        (name, pa.float64() if name in DERIVED else arrow_type(name, RequestTimeline))
        for name in wanted
    )


def sample_table(
    engine: Engine,
    window: Window,
    *,
    equals: Mapping[str, str | None] = _ALL,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The engine samples of a window, ordered by `at_unix_ns`. See `request_table`."""
    return _samples(engine, window, SAMPLES, EngineSample, equals, columns)


def sample_peaks(
    engine: Engine,
    window: Window,
    first_unix_ns: int,
    width_ns: int,
    gauges: Sequence[str],
    *,
    equals: Mapping[str, str | None] = _ALL,
) -> pa.Table:
    """The maximum of each gauge, for each engine and each bin of a chart.

    Args:
        window: range of `at_unix_ns`.
        first_unix_ns: start of a bin. It must not be after the start of the window.
        equals: as in `request_table`.

    Returns: replica, engine, at_unix_ns (the start of the bin) and the gauges, unordered.
    """
    known = _check_names(gauges, SAMPLES.columns.keys())
    at = SAMPLES.c.at_unix_ns
    begins = (at - (at - literal(first_unix_ns)) % literal(width_ns)).label("at_unix_ns")
    who = (SAMPLES.c.replica, SAMPLES.c.engine)
    statement = (
        select(*who, begins, *(func.max(SAMPLES.c[name]).label(name) for name in known))
        .where(_in(window, at), *_conditions(SAMPLES, equals, SAMPLE_LABELS))
        .group_by(*who, begins)
    )
    names = ("replica", "engine", "at_unix_ns", *known)
    schema = pa.schema([(name, arrow_type(name, EngineSample)) for name in names])
    return fetched(engine, statement, schema)


def gpu_table(
    engine: Engine,
    window: Window,
    *,
    equals: Mapping[str, str | None] = _ALL,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The GPU samples of a window, ordered by `at_unix_ns`. See `request_table`."""
    return _samples(engine, window, GPUS, GpuSample, equals, columns)


def _samples(
    engine: Engine,
    window: Window,
    table: Table,
    row_type: type,
    equals: Mapping[str, str | None],
    columns: Sequence[str] | None,
) -> pa.Table:
    wanted = _check_names(columns, table.columns.keys())
    statement = select_samples(table, row_type, window, equals, wanted).order_by(table.c.at_unix_ns)
    return fetched(engine, statement, sample_schema(row_type, wanted))


def select_samples(
    table: Table,
    row_type: type,
    window: Window,
    equals: Mapping[str, str | None],
    columns: Sequence[str],
) -> Select[Any]:
    """Build the query for columns of engine or GPU samples in a window, unordered."""
    wanted = _check_names(columns, table.columns.keys())
    return select(*(table.c[name] for name in wanted)).where(
        _in(window, table.c.at_unix_ns), *_conditions(table, equals, labels_of(row_type))
    )


def sample_schema(row_type: type, wanted: Sequence[str]) -> pa.Schema:
    """The Arrow schema of columns of a sample."""
    return pa.schema([(name, arrow_type(name, row_type)) for name in wanted])


def request_count(
    engine: Engine, window: Window, *, equals: Mapping[str, str | None] = _ALL
) -> int:
    """The number of requests received in a window. See `request_table`."""
    statement = select(func.count()).where(
        *requests_in(window, equals), *_conditions(REQUESTS, equals, REQUEST_LABELS)
    )
    with reading(engine) as connection:
        return connection.scalar(statement) or 0


def label_values(engine: Engine, window: Window, label: str) -> list[str]:
    """The values of a request label in a window, sorted, without unknown values."""
    _check_names([label], REQUEST_LABELS, "label")
    column = REQUESTS.c[label]
    statement = select(column).distinct().where(*requests_in(window), column.is_not(None))
    with reading(engine) as connection:
        values = connection.scalars(statement).all()
    # Sort here, because each database sorts text differently.
    return [_text(value) for value in sorted(values)]


def newest_unix_ns(engine: Engine) -> int | None:
    """Time of the latest request or engine sample, or None."""
    instants = (_newest(engine, REQUESTS.c.received_unix_ns), _newest(engine, SAMPLES.c.at_unix_ns))
    return max((instant for instant in instants if instant is not None), default=None)


def newest_request_unix_ns(engine: Engine) -> int | None:
    """When the latest request was received, or None."""
    return _newest(engine, REQUESTS.c.received_unix_ns)


def oldest_request_unix_ns(engine: Engine) -> int | None:
    """When the earliest stored request was received, or None."""
    with reading(engine) as connection:
        oldest: int | None = connection.scalar(select(func.min(REQUESTS.c.received_unix_ns)))
    return oldest


def _newest(engine: Engine, instant: ColumnElement[int]) -> int | None:
    with reading(engine) as connection:
        return connection.scalar(select(func.max(instant)))


def simulated(engine: Engine, window: Window) -> bool:
    """Whether a request or an engine sample in the window is simulated."""
    return simulated_requests(engine, window) or simulated_samples(engine, window)


def simulated_requests(engine: Engine, window: Window) -> bool:
    """Whether a request in the window is simulated. If no request is simulated, the query reads
    every request."""
    return _any(
        engine,
        _in(window, REQUESTS.c.received_unix_ns),
        REQUESTS.c.source == Source.SIMULATOR.value,
    )


def simulated_samples(engine: Engine, window: Window) -> bool:
    """Whether an engine sample in the window is simulated."""
    return _any(engine, _in(window, SAMPLES.c.at_unix_ns), SAMPLES.c.simulated)


def _any(engine: Engine, *which: ColumnElement[bool]) -> bool:
    with reading(engine) as connection:
        return bool(connection.scalar(select(exists().where(*which))))


def _check_names(
    given: Sequence[str] | None, allowed: Sequence[str], what: str = "column"
) -> Sequence[str]:
    for name in given or ():
        if name not in allowed:
            raise ValueError(f"unknown {what} {name!r}; allowed: {', '.join(allowed)}")
    return allowed if given is None else given


def _request_column(name: str) -> ColumnElement[Any]:
    if name == "tpot_s":
        return tpot(REQUESTS.c.decode_s, REQUESTS.c.output_tokens).label(name)
    if name in PARTS:
        return _part(name).label(name)
    return REQUESTS.c[name]


def _part(name: str) -> ColumnElement[float | None]:
    in_prefill, in_decode = REQUESTS.c[f"prefill_{name}"], REQUESTS.c[f"decode_{name}"]
    return case((REQUESTS.c.decode_s.is_(None), in_prefill), else_=in_prefill + in_decode)


def tpot(
    decode_s: ColumnElement[float | None], output_tokens: ColumnElement[int | None]
) -> ColumnElement[float | None]:
    """The SQL expression for `telemetry.requests.tpot_s`."""
    return case((output_tokens >= 2, decode_s / (output_tokens - 1)))


def _in(window: Window, instant: ColumnElement[int]) -> ColumnElement[bool]:
    return and_(instant >= window.from_unix_ns, instant < window.to_unix_ns)


def requests_in(
    window: Window, equals: Mapping[str, str | None] = _ALL
) -> tuple[ColumnElement[bool], ...]:
    """The SQL conditions that select one row for each request of a window. See `request_table`."""
    return (
        _in(window, REQUESTS.c.received_unix_ns),
        counts(window.from_unix_ns, window.to_unix_ns, equals),
    )


def conditions_of(equals: Mapping[str, str | None]) -> list[ColumnElement[bool]]:
    """The SQL conditions that select requests by labels. See `request_table`."""
    return _conditions(REQUESTS, equals, REQUEST_LABELS)


def _conditions(
    table: Table, equals: Mapping[str, str | None], labels: Sequence[str]
) -> list[ColumnElement[bool]]:
    _check_names(list(equals), labels, "label")
    return [
        table.c[label].is_(None) if text is None else table.c[label] == _value(table, label, text)
        for label, text in equals.items()
    ]


def _value(table: Table, label: str, text: str) -> str | int | bool:
    """Convert a label's text to its column's type, as the inverse of `_text`."""
    kind = table.c[label].type.python_type
    if (allowed := malformed(kind, text)) is not None:
        raise ValueError(f"{label} = {text!r}: {allowed}")
    if kind is bool:
        return text == "true"
    return int(text) if kind is int else text


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def fetched(engine: Engine, statement: Select[Any], schema: pa.Schema) -> pa.Table:
    """Run a query and return its rows as an Arrow table."""
    batches = []
    with reading(engine) as connection:
        # The driver's plain tuples are faster than SQLAlchemy's rows.
        cursor = connection.execute(statement, execution_options={IN_BULK: True}).cursor
        while cursor is not None and (rows := cursor.fetchmany(BATCH_ROWS)):
            arrays = map(_array, zip(*rows, strict=True), schema.types)
            batches.append(pa.record_batch(list(arrays), schema=schema))
    return pa.Table.from_batches(batches, schema).combine_chunks()


def _array(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):  # some databases return 0 and 1 for booleans
        return pa.array([None if each is None else bool(each) for each in values], kind)
    return pa.array(values, kind)
