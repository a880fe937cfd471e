"""Tables and Arrow types, derived from the dataclasses of `telemetry/`.

Each field is a column; a field that may be None is a nullable column. A revision in `migrations/`
adds new columns to existing databases.
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

from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart

KEPT_FIRST = "kept_first"
"""In a table's `info`: of rows with one key the first stands, and is never replaced."""

REQUEST_KEY = ("received_unix_ns", "trace_id", "span_id")
"""The instant first: ids are random, so rows in their order are scattered over the disk. A span
that is sent again gets the same instant (`collector/rows/sender_clocks.py` ensures it)."""
SAMPLE_KEY = ("replica", "engine", "process", "at_unix_ns")
START_KEY = SAMPLE_KEY
GPU_KEY = ("replica", "gpu", "at_unix_ns")
IN_FLIGHT_KEY = ("span_id", "trace_id")
"""Without the instant, which a correction of the sender's clock may move between two reports."""


class Kind(NamedTuple):
    """How one Python type is kept in SQL and handed out in Arrow."""

    python: type
    sql: type[TypeEngine[Any]]
    arrow: pa.DataType


KINDS = (
    Kind(str, Text, pa.string()),
    Kind(bool, Boolean, pa.bool_()),
    Kind(int, BigInteger, pa.int64()),
    Kind(float, Double, pa.float64()),
)


class Field(NamedTuple):
    """One field of a noun: its name, its kind, whether it may be unknown."""

    name: str
    kind: Kind
    nullable: bool


def fields_of(noun: type) -> tuple[Field, ...]:
    """The fields of a dataclass, in its order.

    Raises:
        TypeError: a field's type has no column type here.
    """
    return _fields(noun)


@cache
def _fields(noun: Any) -> tuple[Field, ...]:
    return tuple(_field(name, hint) for name, hint in get_type_hints(noun).items())


def _field(name: str, hint: Any) -> Field:
    nullable = isinstance(hint, UnionType) and NoneType in get_args(hint)
    python = next(arm for arm in get_args(hint) if arm is not NoneType) if nullable else hint
    if isinstance(python, type) and issubclass(python, Enum) and issubclass(python, str):
        python = str
    for kind in KINDS:
        if kind.python is python:
            return Field(name, kind, nullable)
    allowed = ", ".join(kind.python.__name__ for kind in KINDS)
    raise TypeError(f"{name}: no column type for {hint}; allowed: {allowed}, each or None")


def _table(name: str, noun: type, key: tuple[str, ...], instant: str) -> Table:
    return Table(
        name,
        METADATA,
        *_columns(noun),
        PrimaryKeyConstraint(*key),
        # Every question has a window of time.
        Index(f"{name}_{instant}", instant),
        info={KEPT_FIRST: True},
    )


def _columns(noun: type) -> list[Column[Any]]:
    return [
        Column(field.name, field.kind.sql(), nullable=field.nullable, autoincrement=False)
        for field in fields_of(noun)
    ]


METADATA = MetaData()
"""All tables; other modules of the store add theirs, and `tables.py` has the whole."""

REQUESTS = _table("requests", RequestTimeline, REQUEST_KEY, "received_unix_ns")
SAMPLES = _table("engine_samples", EngineSample, SAMPLE_KEY, "at_unix_ns")
STARTS = _table("engine_starts", EngineStart, START_KEY, "at_unix_ns")
GPUS = _table("gpu_samples", GpuSample, GPU_KEY, "at_unix_ns")
IN_FLIGHT = Table(
    "requests_in_flight",
    METADATA,
    *_columns(InFlightRequest),
    # Few rows, each of which a later report replaces: no index by an instant that moves.
    PrimaryKeyConstraint(*IN_FLIGHT_KEY),
)


def arrow_type(column: str, noun: type) -> pa.DataType:
    """The Arrow type of a noun's column."""
    return next(field.kind.arrow for field in fields_of(noun) if field.name == column)


def labels_of(noun: type) -> tuple[str, ...]:
    """The columns that rows may be picked by: those that name a thing, or number one."""
    numbered = {"engine", "process", "http_status", "streamed", "simulated"}
    return tuple(f.name for f in fields_of(noun) if f.kind.python is str or f.name in numbered)
