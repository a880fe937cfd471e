"""Declare the tables for rollups of requests, and the format of packed numbers.

A bucket contains the requests that were received in a minute or an hour. One row stores all label
sets of a bucket, as parallel little-endian arrays without a header. A row for each label set and
bin would be fifty times slower (decision 022).

- `rollups`: for each bucket and grouping, the label sets, their numbers of requests, and FACTS
- `rollup_bins`: the sketches of each latency (telemetry/sketches.py), with the smallest integer
  type that fits the counts
- `rollup_labels`, `rollup_names`: the label sets, and the label values that are stored by name
- `rollup_marks`, `rollup_state`: the buckets to build, and since when the source data is complete
"""

import base64
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    LargeBinary,
    Table,
    Text,
    TypeDecorator,
    func,
)

from store.schema import METADATA
from telemetry.fields import rolled_up
from telemetry.requests import RequestTimeline

MINUTE_S: Final = 60
HOUR_S: Final = 3_600
DAY_S: Final = 86_400
WIDTHS_S: Final = (MINUTE_S, HOUR_S)
"""Widths of buckets. Minutes are built from requests, and hours from minutes."""

LABELS: Final = ("model", "lora", "route", "tenant", "region", "replica", "outcome", "streamed")

QUANTITIES: Final = ("tpot_s", *rolled_up(RequestTimeline))

FACTS: Final = ("number", "sum", "least", "greatest")
"""Each quantity is stored as these four numbers, over the requests whose value is known. Only
latencies have a minimum and maximum."""

COMMON: Final = ("model", "outcome", "streamed")

NAMED: Final = ("tenant", "replica", "route", "lora", "region")
"""The labels for which `GROUPINGS` has a separate grouping."""

GROUPINGS: Final[tuple[tuple[str, ...], ...]] = (
    LABELS,
    COMMON,
    *((*COMMON, label) for label in NAMED),
)
"""The labels of each grouping. The first grouping has all labels, but in some of its label sets,
values are replaced by `_other`. The second grouping serves the most frequent queries. Each further
grouping adds one label to the second grouping. In this grouping, all requests of a value that is
stored by name are counted under this name (decision 098). Buckets of older versions have only the
first two groupings."""


class _Base64(TypeDecorator[bytes]):
    """Type for bytes in ClickHouse. Queries return base64, because the driver would decode bytes as
    text."""

    impl = LargeBinary
    cache_ok = True

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """An SQL expression that encodes the column as base64."""
        return func.base64Encode(column, type_=self)

    def result_processor(self, dialect: Any, coltype: object) -> Any:
        """Decode base64 in the client."""
        return lambda value: None if value is None else base64.b64decode(value)


PACKED: Final = LargeBinary().with_variant(_Base64(), "clickhousedb")


def key_column(name: str) -> "Column[int]":
    """An integer primary key column, without autoincrement."""
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


ROLLUPS: Final = Table(
    "rollups",
    METADATA,
    key_column("grouping"),
    key_column("width_s"),
    key_column("from_unix_s"),
    # Simulated requests have separate rows, so that deleting a simulation changes no other row.
    Column("simulated", Boolean, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    # Always 0. Remove it with the next revision that raises `TELEMETRY.oldest`.
    Column("overflowed", BigInteger, nullable=False),
    Column("label_sets", PACKED, nullable=False),
    Column("set_requests", PACKED, nullable=False),
    *(Column(name, PACKED, nullable=True) for name in QUANTITIES),
)
BINS: Final = Table(
    "rollup_bins",
    METADATA,
    Column("latency", Text, primary_key=True),
    key_column("grouping"),
    key_column("width_s"),
    key_column("from_unix_s"),
    Column("simulated", Boolean, primary_key=True),
    Column("label_sets", PACKED, nullable=False),
    Column("sizes", PACKED, nullable=False),
    Column("bins", PACKED, nullable=False),
    Column("counts", PACKED, nullable=False),
)
LABEL_SETS: Final = Table(
    "rollup_labels",
    METADATA,
    key_column("label_set"),
    *(Column(label, Text, nullable=True) for label in LABELS),
    Column("newest_unix_s", BigInteger, nullable=False),
    # The index in `GROUPINGS` of the first grouping that contains the label set, or 0 in rows of
    # older versions.
    Column("grouping", BigInteger, nullable=False, server_default="0"),
)
NAMES: Final = Table(
    "rollup_names",
    METADATA,
    Column("label", Text, primary_key=True),
    Column("value", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    # Bit i is set if the value occurred in the hour `newest_hour` − i.
    Column("hours", BigInteger, nullable=False),
    Column("newest_hour", BigInteger, nullable=False),
    # NULL if the value is stored as `_other`
    Column("named_from_unix_s", BigInteger, nullable=True),
)


def marks_table(name: str) -> Table:
    """The table of the buckets to build."""
    columns = ("width_s", "from_unix_s", "token")
    return Table(name, METADATA, *(key_column(column) for column in columns))


def state_table(name: str) -> Table:
    """The table that stores the time since which the source data of buckets is complete."""
    whole = Column("whole_from_unix_s", BigInteger, nullable=False)
    return Table(name, METADATA, key_column("width_s"), whole)


MARKS: Final = marks_table("rollup_marks")
STATE: Final = state_table("rollup_state")

LABEL_SET: Final = np.dtype("<i8")
NUMBER: Final = np.dtype("<u4")
FACT: Final = np.dtype("<f8")
SIZE: Final = np.dtype("<i4")
BIN: Final = np.dtype("<i2")
COUNTS: Final = (np.dtype("<u1"), np.dtype("<u2"), np.dtype("<u4"))


def packed(values: NDArray[Any], kind: DTypeLike) -> bytes:
    """The bytes of an array in the stored format."""
    return np.ascontiguousarray(values, kind).tobytes()
