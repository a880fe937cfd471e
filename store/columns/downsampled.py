"""Read a part of a long time range: the rows in every k-th slot of 16 seconds.

The increases of counters stay exact, but gauges can miss a burst. Each slot contains a sample of
each running engine. If a range has so many rows that every k-th slot of 16 seconds could be outside
the range, the slots are shorter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Engine, Select, Table, and_, func, or_, select
from sqlalchemy.exc import DBAPIError

from store.columns.request_columns import FEW_ROWS, encoded_schema
from store.connections import read_columns, reading
from store.errors import NotQuick
from store.queries import fetched, request_schema, sample_schema, select_requests, select_samples
from store.schema import GPUS, REQUESTS, SAMPLES
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.window import Window

SLOT_NS: Final = 16 * 10**9
"""Maximum length of a slot."""
MAX_ROWS: Final = 120_000
"""Approximate maximum number of rows. Every database returns them within half a second."""

_PROBES: Final = 32
_PROBED_ONE_IN: Final = 20
_ALL: Mapping[str, str | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Downsampled:
    """The rows of every `one_in`-th time slot, in order of time."""

    table: pa.Table
    one_in: int
    slot_ns: int = SLOT_NS

    @property
    def every_s(self) -> int:
        """Seconds between the starts of two successive slots."""
        return self.one_in * self.slot_ns // 10**9


def engine_samples(
    engine: Engine,
    window: Window,
    columns: Sequence[str],
    equals: Mapping[str, str | None] = _ALL,
    *,
    max_rows: int | None = MAX_ROWS,
) -> Downsampled:
    """Read engine samples. See `queries.sample_table`. If `max_rows` is None, all rows are read."""
    return _samples(engine, window, SAMPLES, EngineSample, columns, equals, max_rows)


def gpu_samples(
    engine: Engine,
    window: Window,
    columns: Sequence[str],
    equals: Mapping[str, str | None] = _ALL,
    *,
    max_rows: int | None = MAX_ROWS,
) -> Downsampled:
    """Read GPU samples. See `engine_samples`."""
    return _samples(engine, window, GPUS, GpuSample, columns, equals, max_rows)


def _samples(
    engine: Engine,
    window: Window,
    table: Table,
    row_type: type,
    columns: Sequence[str],
    equals: Mapping[str, str | None],
    max_rows: int | None,
) -> Downsampled:
    statement = select_samples(table, row_type, window, equals, columns)
    schema = sample_schema(row_type, columns)
    return _read(engine, window, table, table.c.at_unix_ns, statement, schema, max_rows)


def requests(
    engine: Engine,
    window: Window,
    columns: Sequence[str],
    equals: Mapping[str, str | None] = _ALL,
    *,
    max_rows: int = MAX_ROWS,
) -> Downsampled:
    """Read requests in the order of receipt. See `queries.request_table`."""
    instant = REQUESTS.c.received_unix_ns
    statement = select_requests(columns, window, equals)
    schema = request_schema(columns)
    return _read(engine, window, REQUESTS, instant, statement, schema, max_rows)


def _read(
    engine: Engine,
    window: Window,
    table: Table,
    instant: ColumnElement[int],
    statement: Select[Any],
    schema: pa.Schema,
    max_rows: int | None,
) -> Downsampled:
    about = _estimated_rows(engine, window, table, instant, max_rows or FEW_ROWS)
    one_in = max(1, -(-about // max_rows)) if max_rows is not None else 1
    slot_ns = min(SLOT_NS, max(1, (window.to_unix_ns - window.from_unix_ns) // one_in))
    if one_in > 1:
        statement = statement.where(instant % (one_in * slot_ns) < slot_ns)
    encoded = encoded_schema(schema)
    try:
        if about < FEW_ROWS:
            raise NotQuick("there are few rows")
        found = read_columns(engine, [statement], encoded)
    except (NotQuick, DBAPIError):
        found = fetched(engine, statement, schema).cast(encoded)
    order = pc.sort_indices(found, [(str(instant.key), "ascending")])
    return Downsampled(found.take(order).unify_dictionaries(), one_in, slot_ns)


def _estimated_rows(
    engine: Engine, window: Window, table: Table, instant: ColumnElement[int], max_rows: int
) -> int:
    """The number of rows, estimated from evenly spaced parts if it is large."""
    inside = and_(instant >= window.from_unix_ns, instant < window.to_unix_ns)
    some = select(instant).where(inside).limit(max_rows + 1).subquery()
    with reading(engine) as connection:
        counted = connection.scalar(select(func.count()).select_from(some)) or 0
        if counted <= max_rows:
            return counted
        apart = (window.to_unix_ns - window.from_unix_ns) // _PROBES
        starts = [window.from_unix_ns + place * apart for place in range(_PROBES)]
        probed = or_(
            *(and_(instant >= at, instant < at + apart // _PROBED_ONE_IN) for at in starts)
        )
        found = connection.scalar(select(func.count()).select_from(table).where(probed)) or 0
    return max(counted, found * _PROBED_ONE_IN)
