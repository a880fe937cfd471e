"""Queries about a window of time, answered as Arrow tables.

Values are always bound and names are checked against the schema, so a caller's text never becomes
SQL.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from store.schema import GPUS, REQUESTS, SAMPLES, arrow_type, labels_of
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import PARTS, RequestTimeline, Source

BATCH_ROWS = 1_000
"""Rows that are Python objects at one time: few enough to stay in the processor's cache and
out of the garbage collector's sight, which makes a long read a third quicker."""

_INT64 = range(-(2**63), 2**63)
_ALL: Mapping[str, str | None] = MappingProxyType({})
_NOT_EXACT_NS = 10**6

DERIVED = ("tpot_s", *PARTS)
"""Columns computed from others: time per output token, and each part over prefill and decode."""

REQUEST_COLUMNS = (*REQUESTS.columns.keys(), *DERIVED)
REQUEST_LABELS = labels_of(RequestTimeline)
SAMPLE_COLUMNS = tuple(SAMPLES.columns.keys())
SAMPLE_LABELS = labels_of(EngineSample)
GPU_COLUMNS = tuple(GPUS.columns.keys())
GPU_LABELS = labels_of(GpuSample)


@dataclass(frozen=True, slots=True)
class Window:
    """The instants t with from ≤ t < to, in unix nanoseconds."""

    from_unix_ns: int
    to_unix_ns: int

    def __post_init__(self) -> None:
        for value in (self.from_unix_ns, self.to_unix_ns):
            if value not in _INT64:
                raise ValueError(f"{value} is no instant: nanoseconds must fit 64 bits")
        if self.from_unix_ns > self.to_unix_ns:
            raise ValueError(
                f"a window must not end before it begins: {self.from_unix_ns} > {self.to_unix_ns}"
            )


def request_table(
    engine: Engine,
    window: Window,
    *,
    equals: Mapping[str, str | None] = _ALL,
    columns: Sequence[str] | None = None,
    order_by: str | None = None,
    limit: int | None = None,
    ended_after_unix_ns: int | None = None,
) -> pa.Table:
    """The requests received in a window.

    Args:
        engine: from `open_database`.
        window: of `received_unix_ns`.
        equals: label → value; None picks the rows where the label is unknown.
        columns: those wanted, of `REQUEST_COLUMNS`; None for all.
        order_by: a column, or "-column" for descending; unknown values come last. None
            for the order of receipt, which also breaks ties.
        limit: the most rows.
        ended_after_unix_ns: only those; some that ended up to a millisecond before may be
            among them, for the database's arithmetic is not exact.

    Raises:
        ValueError: an unknown column or label, or a negative limit.
    """
    wanted = known_columns(columns)
    statement = select_requests(wanted, window, equals, ended_after_unix_ns=ended_after_unix_ns)
    if order_by is not None:
        (name,) = _known([order_by.removeprefix("-")], REQUEST_COLUMNS)
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


def known_columns(given: Sequence[str] | None) -> Sequence[str]:
    """All columns where None are given; raises ValueError where one is not of them."""
    return _known(given, REQUEST_COLUMNS)


def select_requests(
    wanted: Sequence[str],
    window: Window,
    equals: Mapping[str, str | None],
    *,
    part: Window | None = None,
    ended_after_unix_ns: int | None = None,
) -> Select[Any]:
    """Some columns of a window's requests, or of those of a part of it, in no order.

    Which of two rows represents a request is decided in the whole window, whatever the part.
    """
    statement = select(*(_request_column(name) for name in wanted)).where(
        _in(part or window, REQUESTS.c.received_unix_ns),
        counts(window.from_unix_ns, window.to_unix_ns),
        *_conditions(REQUESTS, equals, REQUEST_LABELS),
    )
    if ended_after_unix_ns is None:
        return statement
    return statement.where(
        REQUESTS.c.e2e_s * 1e9 > ended_after_unix_ns - _NOT_EXACT_NS - REQUESTS.c.received_unix_ns
    )


def request_schema(wanted: Sequence[str]) -> pa.Schema:
    """Columns as Arrow has them."""
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
    """The engine samples of a window, in the order of `at_unix_ns`; arguments as above."""
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
    """The highest value of some gauges, of each engine in each bin: of a day of samples, the few
    that a chart shows.

    Args:
        engine: from `open_database`.
        window: of `at_unix_ns`.
        first_unix_ns: where a bin begins, at or before the window.
        width_ns: of a bin.
        gauges: numeric columns.
        equals: label → value, as above.

    Returns: replica, engine, at_unix_ns (the bin's beginning) and the gauges, unordered.
    """
    known = _known(gauges, SAMPLES.columns.keys())
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
    """The samples of GPUs of a window, in the order of `at_unix_ns`; arguments as above."""
    return _samples(engine, window, GPUS, GpuSample, equals, columns)


def _samples(
    engine: Engine,
    window: Window,
    table: Table,
    noun: type,
    equals: Mapping[str, str | None],
    columns: Sequence[str] | None,
) -> pa.Table:
    wanted = _known(columns, table.columns.keys())
    statement = select_samples(table, noun, window, equals, wanted).order_by(table.c.at_unix_ns)
    return fetched(engine, statement, sample_schema(noun, wanted))


def select_samples(
    table: Table,
    noun: type,
    window: Window,
    equals: Mapping[str, str | None],
    columns: Sequence[str],
) -> Select[Any]:
    """Some columns of a window's samples of engines or GPUs, in no order; errors as above."""
    wanted = _known(columns, table.columns.keys())
    return select(*(table.c[name] for name in wanted)).where(
        _in(window, table.c.at_unix_ns), *_conditions(table, equals, labels_of(noun))
    )


def sample_schema(noun: type, wanted: Sequence[str]) -> pa.Schema:
    """Columns of a sample as Arrow has them."""
    return pa.schema([(name, arrow_type(name, noun)) for name in wanted])


def request_count(
    engine: Engine, window: Window, *, equals: Mapping[str, str | None] = _ALL
) -> int:
    """How many requests were received in a window; arguments as above."""
    statement = select(func.count()).where(
        *requests_in(window), *_conditions(REQUESTS, equals, REQUEST_LABELS)
    )
    with reading(engine) as connection:
        return connection.scalar(statement) or 0


def label_values(engine: Engine, window: Window, label: str) -> list[str]:
    """The known values of a request's label in a window, sorted.

    Raises:
        ValueError: no such label.
    """
    _known([label], REQUEST_LABELS, "label")
    column = REQUESTS.c[label]
    statement = select(column).distinct().where(*requests_in(window), column.is_not(None))
    with reading(engine) as connection:
        values = connection.scalars(statement).all()
    # Sorted here, because databases differ in how they sort text.
    return [_text(value) for value in sorted(values)]


def newest_unix_ns(engine: Engine) -> int | None:
    """When the latest request was received or the latest sample taken; None in an empty store."""
    instants = (_newest(engine, REQUESTS.c.received_unix_ns), _newest(engine, SAMPLES.c.at_unix_ns))
    return max((instant for instant in instants if instant is not None), default=None)


def newest_request_unix_ns(engine: Engine) -> int | None:
    """When the latest request was received; None where there is none."""
    return _newest(engine, REQUESTS.c.received_unix_ns)


def _newest(engine: Engine, instant: ColumnElement[int]) -> int | None:
    with reading(engine) as connection:
        return connection.scalar(select(func.max(instant)))


def simulated(engine: Engine, window: Window) -> bool:
    """Whether anything in the window comes from a simulator rather than a server."""
    return simulated_requests(engine, window) or simulated_samples(engine, window)


def simulated_requests(engine: Engine, window: Window) -> bool:
    """Whether any of its requests do: where none do, each of them is looked at."""
    return _any(
        engine,
        _in(window, REQUESTS.c.received_unix_ns),
        REQUESTS.c.source == Source.SIMULATOR.value,
    )


def simulated_samples(engine: Engine, window: Window) -> bool:
    """The same of its engines' samples."""
    return _any(engine, _in(window, SAMPLES.c.at_unix_ns), SAMPLES.c.simulated)


def _any(engine: Engine, *which: ColumnElement[bool]) -> bool:
    with reading(engine) as connection:
        return bool(connection.scalar(select(exists().where(*which))))


def _known(
    given: Sequence[str] | None, allowed: Sequence[str], what: str = "column"
) -> Sequence[str]:
    for name in given or ():
        if name not in allowed:
            raise ValueError(f"{name!r} is no {what}; allowed: {', '.join(allowed)}")
    return allowed if given is None else given


def _request_column(name: str) -> ColumnElement[Any]:
    if name == "tpot_s":
        return tpot(REQUESTS.c.decode_s, REQUESTS.c.output_tokens).label(name)
    if name in PARTS:
        return _part(name).label(name)
    return REQUESTS.c[name]


def _part(name: str) -> ColumnElement[float | None]:
    """`telemetry.requests.part_s` in SQL."""
    in_prefill, in_decode = REQUESTS.c[f"prefill_{name}"], REQUESTS.c[f"decode_{name}"]
    return case((REQUESTS.c.decode_s.is_(None), in_prefill), else_=in_prefill + in_decode)


def tpot(
    decode_s: ColumnElement[float | None], output_tokens: ColumnElement[int | None]
) -> ColumnElement[float | None]:
    """`telemetry.requests.tpot_s` in SQL, so that the database can sort by it."""
    return case((output_tokens >= 2, decode_s / (output_tokens - 1)))


def _in(window: Window, instant: ColumnElement[int]) -> ColumnElement[bool]:
    return and_(instant >= window.from_unix_ns, instant < window.to_unix_ns)


def requests_in(window: Window) -> tuple[ColumnElement[bool], ...]:
    """The rows of a window, each request once."""
    return (
        _in(window, REQUESTS.c.received_unix_ns),
        counts(window.from_unix_ns, window.to_unix_ns),
    )


def conditions_of(equals: Mapping[str, str | None]) -> list[ColumnElement[bool]]:
    """That requests bear these labels; arguments and errors as for `request_table`."""
    return _conditions(REQUESTS, equals, REQUEST_LABELS)


def _conditions(
    table: Table, equals: Mapping[str, str | None], labels: Sequence[str]
) -> list[ColumnElement[bool]]:
    _known(list(equals), labels, "label")
    return [
        table.c[label].is_(None) if text is None else table.c[label] == _value(table, label, text)
        for label, text in equals.items()
    ]


def _value(table: Table, label: str, text: str) -> str | int | bool:
    """A label's value as its column holds it; the inverse of `_text`."""
    kind = table.c[label].type.python_type
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(f"{label} = {text!r}: must be true or false")
        return text == "true"
    if kind is int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise ValueError(f"{label} = {text!r}: must be a whole number")
        return int(text)
    return text


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def fetched(engine: Engine, statement: Select[Any], schema: pa.Schema) -> pa.Table:
    """Run a query and turn its rows to columns, batch by batch."""
    batches = []
    with reading(engine) as connection:
        # The driver's own rows: SQLAlchemy's would be made only to be taken apart.
        cursor = connection.execute(statement, execution_options={IN_BULK: True}).cursor
        while cursor is not None and (rows := cursor.fetchmany(BATCH_ROWS)):
            arrays = map(_array, zip(*rows, strict=True), schema.types)
            batches.append(pa.record_batch(list(arrays), schema=schema))
    return pa.Table.from_batches(batches, schema).combine_chunks()


def _array(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):  # which not every database has
        return pa.array([None if each is None else bool(each) for each in values], kind)
    return pa.array(values, kind)
