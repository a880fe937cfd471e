"""Convert the Arrow tables that the store returns to the columns of `diagnosis.inputs`. Pure. A
null becomes NaN. Labels become dictionary-encoded."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.inputs.requests import (
    LABELS,
    NUMBERS,
    FloatArray,
    LabelColumn,
    LazyColumns,
    Requests,
)
from diagnosis.inputs.servers import (
    ENGINE_NUMBERS,
    GPU_VALUES,
    Samples,
    Servers,
    no_samples,
)
from telemetry.cold_starts import ColdStart
from telemetry.counter_series import IntArray, series_numbers
from telemetry.starts import EngineStart

REQUEST_COLUMNS: Final = ("received_unix_ns", *NUMBERS, *LABELS)

ENGINE_COLUMNS: Final = ("replica", "started_unix_ns", "at_unix_ns", *ENGINE_NUMBERS)
GPU_COLUMNS: Final = ("replica", "gpu", "at_unix_ns", *GPU_VALUES)
"""The columns of samples that the diagnosis reads. If another column is requested, `Samples.number`
raises an error."""

RANGE: Final = "range"
"""The column with the index of the time range for which a sample was read: the baseline or the
window. Each range has its own series, because the increase of a counter between the two ranges
belongs to neither range."""

_SERIES: Final = (RANGE, "replica", "engine", "gpu", "process", "started_unix_ns")


def requests_of(table: pa.Table, extra_columns: Sequence[str] = ()) -> Requests:
    """Read requests from a table, with the extra columns as labels. Only the column
    `received_unix_ns` is required."""
    names = table.column_names
    return Requests(
        np.asarray(table["received_unix_ns"].to_numpy(), dtype=np.int64),
        LazyColumns({name: table[name] for name in NUMBERS if name in names}, _floats),
        LazyColumns(
            {name: table[name] for name in (*LABELS, *extra_columns) if name in names}, _labels
        ),
    )


def samples_of(table: pa.Table) -> Samples:
    """Read engine or GPU samples from a table. `at_unix_ns` and `replica` are required."""
    if not table.num_rows:
        return no_samples()
    numbers, texts = {}, {}
    for name in table.column_names:
        if name.endswith("_unix_ns"):
            continue  # a float would round the time
        kind = table.schema.field(name).type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            numbers[name] = _floats(table[name])
        else:
            texts[name] = _labels(table[name])
    return Samples(
        np.asarray(table["at_unix_ns"].to_numpy(), dtype=np.int64),
        texts["replica"],
        _series(table),
        numbers,
        texts,
    )


def servers_of(
    engines: pa.Table,
    gpus: pa.Table | None = None,
    starts: Sequence[EngineStart] = (),
    cold_starts: Sequence[ColdStart] = (),
) -> Servers:
    """Return the engine samples, GPU samples, starts and parts of starts as one object."""
    sampled = no_samples() if gpus is None else samples_of(gpus)
    return Servers(samples_of(engines), sampled, starts, cold_starts)


def _floats(column: pa.ChunkedArray) -> FloatArray:
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _labels(column: pa.ChunkedArray) -> LabelColumn:
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
        column = pc.dictionary_encode(column)
    column = column.unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        if not column.num_chunks:
            return LabelColumn(np.zeros(0, dtype=np.int32), ())
        column = column.chunk(0)
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return LabelColumn(codes, tuple(str(value) for value in column.dictionary.to_pylist()))


def _series(table: pa.Table) -> IntArray:
    return series_numbers(
        *(
            _labels(table[name].cast(pa.string())).codes.astype(np.int64)
            for name in _SERIES
            if name in table.column_names
        )
    )
