"""Declare tables and Arrow types, derived from the dataclasses of `telemetry/`.

Each field is a column, nullable if the field may be None.
"""

from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_type_hints

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)
from sqlalchemy.types import TypeEngine

from telemetry.application_operations import ApplicationOperation
from telemetry.cache_lookups import CacheLookup
from telemetry.cold_starts import ColdStart
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.probes import Probe
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart

KEEP_FIRST = "kept_first"
"""Key in a table's `info`. It means that the first of several rows with the same primary key is
kept."""
BY_DAY = "by_day"
"""Key in a table's `info`. Its value is the time column by which PostgreSQL divides the table into
days."""

REQUEST_KEY = ("received_unix_ns", "trace_id", "span_id")
"""The columns of a request's primary key. The time comes first, because random ids would scatter
new rows over the disk. If a span is sent again, `collector/rows/sender_clocks.py` corrects it to
the same time, so the key is the same."""
SAMPLE_KEY = ("replica", "engine", "process", "at_unix_ns")
START_KEY = SAMPLE_KEY
GPU_KEY = ("replica", "gpu", "at_unix_ns")
PROBE_KEY = ("at_unix_ns", "trace_id", "span_id")
OPERATION_KEY = PROBE_KEY
LOOKUP_KEY = PROBE_KEY
COLD_START_KEY = PROBE_KEY
IN_FLIGHT_KEY = ("span_id", "trace_id")
"""The key does not contain the time, because a clock correction may change the time."""


class ColumnType(NamedTuple):
    """The SQL type and the Arrow type of a column."""

    python: type
    sql: type[TypeEngine[Any]]
    arrow: pa.DataType


KINDS = (
    ColumnType(str, Text, pa.string()),
    ColumnType(bool, Boolean, pa.bool_()),
    ColumnType(int, BigInteger, pa.int64()),
    ColumnType(float, Double, pa.float64()),
)


class SchemaField(NamedTuple):
    """One field of a dataclass."""

    name: str
    kind: ColumnType
    nullable: bool


def fields_of(row_type: type) -> tuple[SchemaField, ...]:
    """The fields of a dataclass, in order.

    Raises:
        TypeError: a field's type has no column type.
    """
    return _fields(row_type)


@cache
def _fields(row_type: Any) -> tuple[SchemaField, ...]:
    return tuple(_field(name, hint) for name, hint in get_type_hints(row_type).items())


def _field(name: str, hint: Any) -> SchemaField:
    nullable = isinstance(hint, UnionType) and NoneType in get_args(hint)
    python = next(arm for arm in get_args(hint) if arm is not NoneType) if nullable else hint
    if isinstance(python, type) and issubclass(python, Enum) and issubclass(python, str):
        python = str
    for kind in KINDS:
        if kind.python is python:
            return SchemaField(name, kind, nullable)
    allowed = ", ".join(kind.python.__name__ for kind in KINDS)
    raise TypeError(f"{name}: no column type for {hint}; allowed: {allowed}, each or None")


def _table(
    name: str, row_type: type, key: tuple[str, ...], instant: str, *, by_day: bool = False
) -> Table:
    return Table(
        name,
        METADATA,
        *_columns(row_type),
        PrimaryKeyConstraint(*key),
        # Every query has a time window, so the time is indexed.
        Index(f"{name}_{instant}", instant),
        info={KEEP_FIRST: True, **({BY_DAY: instant} if by_day else {})},
        postgresql_partition_by=f"RANGE ({instant})" if by_day else None,
    )


def _columns(row_type: type) -> list[Column[Any]]:
    return [
        Column(field.name, field.kind.sql(), nullable=field.nullable, autoincrement=False)
        for field in fields_of(row_type)
    ]


METADATA = MetaData()
"""The tables of telemetry. `migrations/all_tables.py` imports modules with more tables."""
STATE_METADATA = MetaData()
"""The tables of the state, which can be in a separate database (`store.state`)."""

REQUESTS = _table("requests", RequestTimeline, REQUEST_KEY, "received_unix_ns", by_day=True)
SAMPLES = _table("engine_samples", EngineSample, SAMPLE_KEY, "at_unix_ns", by_day=True)
STARTS = _table("engine_starts", EngineStart, START_KEY, "at_unix_ns")
GPUS = _table("gpu_samples", GpuSample, GPU_KEY, "at_unix_ns", by_day=True)
PROBES = _table("probes", Probe, PROBE_KEY, "at_unix_ns")
OPERATIONS = _table("application_operations", ApplicationOperation, OPERATION_KEY, "at_unix_ns")
LOOKUPS = _table("cache_lookups", CacheLookup, LOOKUP_KEY, "at_unix_ns")
COLD_STARTS = _table("cold_starts", ColdStart, COLD_START_KEY, "at_unix_ns")
IN_FLIGHT = Table(
    "requests_in_flight",
    METADATA,
    *_columns(InFlightRequest),
    # There is no index by time, because each report changes its row's time.
    PrimaryKeyConstraint(*IN_FLIGHT_KEY),
)


def arrow_type(column: str, row_type: type) -> pa.DataType:
    """The Arrow type of a column."""
    return next(field.kind.arrow for field in fields_of(row_type) if field.name == column)
