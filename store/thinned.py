"""Many rows of a long stretch of time, thinned: some seconds of them whole, evenly spread.

What grows with time and servers (50 engines tell 4 million samples a day) is read in slots of
16 seconds, every k-th of them, so that about as many rows come as are wanted. Totals lose
nothing by that: a difference of two samples is what happened between them, read or not. Of a
gauge, a burst between two slots is not seen; who shows it says so.

A slot is longer than two samples of any engine are apart, scraped ones included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Engine, Select, Table, and_, func, select
from sqlalchemy.exc import DBAPIError

from store import dialects
from store.columns import FEW_ROWS, encoded_schema
from store.errors import NotQuick
from store.queries import (
    Window,
    fetched,
    request_schema,
    sample_schema,
    select_requests,
    select_samples,
)
from store.reaching import reading
from store.schema import GPUS, REQUESTS, SAMPLES
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample

SLOT_NS: Final = 16 * 10**9
MOST_ROWS: Final = 250_000
"""Read in a second or so, from any of the databases."""

_PROBES: Final = 5
_PROBE_NS: Final = 60 * 10**9
_ALL: Mapping[str, str | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Thinned:
    """Rows in the order of time, and how many of the slots they are: every `one_in`-th."""

    table: pa.Table
    one_in: int

    @property
    def every_s(self) -> int:
        """How far apart two slots begin."""
        return self.one_in * SLOT_NS // 10**9


def engine_samples(
    engine: Engine,
    window: Window,
    columns: Sequence[str],
    equals: Mapping[str, str | None] = _ALL,
    *,
    most_rows: int = MOST_ROWS,
) -> Thinned:
    """Samples of engines; arguments and errors as for `queries.sample_table`."""
    statement = select_samples(SAMPLES, EngineSample, window, equals, columns)
    schema = sample_schema(EngineSample, columns)
    return _read(engine, window, SAMPLES, SAMPLES.c.at_unix_ns, statement, schema, most_rows)


def gpu_samples(
    engine: Engine,
    window: Window,
    columns: Sequence[str],
    equals: Mapping[str, str | None] = _ALL,
    *,
    most_rows: int = MOST_ROWS,
) -> Thinned:
    """Samples of GPUs; arguments and errors as for `queries.gpu_table`."""
    statement = select_samples(GPUS, GpuSample, window, equals, columns)
    schema = sample_schema(GpuSample, columns)
    return _read(engine, window, GPUS, GPUS.c.at_unix_ns, statement, schema, most_rows)


def requests(
    engine: Engine,
    window: Window,
    columns: Sequence[str],
    equals: Mapping[str, str | None] = _ALL,
    *,
    most_rows: int = MOST_ROWS,
) -> Thinned:
    """Requests by when they were received; arguments and errors as for `request_table`."""
    instant = REQUESTS.c.received_unix_ns
    statement = select_requests(columns, window, equals)
    schema = request_schema(columns)
    return _read(engine, window, REQUESTS, instant, statement, schema, most_rows)


def _read(
    engine: Engine,
    window: Window,
    table: Table,
    instant: ColumnElement[int],
    statement: Select[Any],
    schema: pa.Schema,
    most_rows: int,
) -> Thinned:
    about = _about(engine, window, table, instant)
    one_in = max(1, -(-about // most_rows))
    if one_in > 1:
        statement = statement.where(instant % (one_in * SLOT_NS) < SLOT_NS)
    encoded = encoded_schema(schema)
    try:
        if about < FEW_ROWS:
            raise NotQuick("there are few rows")
        found = dialects.of(engine).read_columns(engine, [statement], encoded)
    except (NotQuick, DBAPIError):  # of a database that is away the plain way tells
        found = fetched(engine, statement, schema).cast(encoded)
    order = pc.sort_indices(found, [(str(instant.key), "ascending")])
    return Thinned(found.take(order).unify_dictionaries(), one_in)


def _about(engine: Engine, window: Window, table: Table, instant: ColumnElement[int]) -> int:
    """About how many rows a window has, from the fullest of some minutes of it: counting them
    all would take as long as reading some. A short window is counted."""
    length = window.to_unix_ns - window.from_unix_ns
    probes = [(window.from_unix_ns, window.to_unix_ns)]
    if length > _PROBES * _PROBE_NS:
        apart = (length - _PROBE_NS) // (_PROBES - 1)
        starts = [window.from_unix_ns + place * apart for place in range(_PROBES)]
        probes = [(start, start + _PROBE_NS) for start in starts]
    with reading(engine) as connection:
        fullest = max(
            connection.scalar(
                select(func.count()).select_from(table).where(and_(instant >= start, instant < end))
            )
            or 0
            for start, end in probes
        )
    return fullest if len(probes) == 1 else fullest * length // _PROBE_NS
