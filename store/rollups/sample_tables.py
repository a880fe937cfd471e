"""Declare the tables for rollups of samples: the counters of engines and GPUs that a bill needs.

A span is a time range of an engine or GPU without interruption. The row of a bucket stores the
first and the last value of each counter in each span. The values are in parallel arrays, with one
element for each span. Element i of the JSON list in `things` contains the key and the text of the
engine or GPU of span i. Arrays are packed as in `tables.py`. An array without any value is NULL.
"""

from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import Boolean, Column, Table, Text

from store.rollups.tables import PACKED, key_column, marks_table, state_table
from store.schema import GPUS, METADATA, SAMPLES
from telemetry.billing_data import COEFFICIENTS, WORK, CounterKey
from telemetry.fields import rolled_up
from telemetry.gpus import GpuSample

INSTANT: Final = np.dtype("<i8")
AMOUNT: Final = np.dtype("<f8")


class SampleKind(NamedTuple):
    """A kind of samples. `key` identifies the engine or GPU. `about` is a text that is stored for
    it."""

    samples: Table
    key: tuple[str, ...]
    about: str
    totals: tuple[str, ...]
    means: tuple[str, ...]
    rollups: Table


def first_of(total: str) -> str:
    """The column with the first value of a counter."""
    return f"first_{total}"


def last_of(total: str) -> str:
    """The column with the last value of a counter."""
    return f"last_{total}"


def _table(name: str, totals: tuple[str, ...], means: tuple[str, ...]) -> Table:
    each = (column(total) for total in totals for column in (first_of, last_of))
    return Table(
        name,
        METADATA,
        key_column("width_s"),
        key_column("from_unix_s"),
        Column("simulated", Boolean, primary_key=True),
        Column("things", Text, nullable=False),
        Column("first_unix_ns", PACKED, nullable=False),
        Column("last_unix_ns", PACKED, nullable=False),
        *(Column(amount, PACKED, nullable=True) for amount in (*each, *means)),
    )


_ENERGY: Final = rolled_up(GpuSample)

ENGINES: Final = SampleKind(
    SAMPLES,
    CounterKey._fields,
    "region",
    WORK,
    COEFFICIENTS,
    _table("engine_stretches", WORK, COEFFICIENTS),
)
DEVICES: Final = SampleKind(
    GPUS, ("replica", "gpu"), "model_name", _ENERGY, (), _table("gpu_stretches", _ENERGY, ())
)
KINDS: Final = (ENGINES, DEVICES)

SAMPLE_MARKS: Final = marks_table("sample_marks")
SAMPLE_STATE: Final = state_table("sample_state")
