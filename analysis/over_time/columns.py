"""Convert Arrow columns to numpy arrays. A null number becomes NaN. Pure."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def floats(table: pa.Table, name: str) -> FloatArray:
    """A numeric column as floats. A null becomes NaN."""
    column = table.column(name).cast(pa.float64())
    result: FloatArray = np.asarray(column.to_numpy(), dtype=np.float64)
    return result


def instants(table: pa.Table, name: str) -> IntArray:
    """A column of unix nanoseconds without nulls, as integers. Floats would round the values."""
    result: IntArray = np.asarray(table.column(name).cast(pa.int64()).to_numpy(), dtype=np.int64)
    return result


def texts(table: pa.Table, name: str) -> list[Any]:
    """A column of strings. A null becomes None."""
    result: list[Any] = table.column(name).to_pylist()
    return result


def highest(values: FloatArray, number: int) -> IntArray:
    """The indices of the highest values, highest first. NaN values are omitted."""
    known = np.flatnonzero(~np.isnan(values))
    if known.size > number:
        known = known[np.argpartition(values[known], known.size - number)[-number:]]
    return known[np.argsort(-values[known], kind="stable")]


def highest_per_cell(
    values: FloatArray, rows: IntArray, columns: IntArray, shape: tuple[int, int]
) -> FloatArray:
    """The highest value of each cell of a grid, or NaN if the cell has no value."""
    found = np.full(shape, -np.inf)
    known = ~np.isnan(values)
    np.maximum.at(found, (rows[known], columns[known]), values[known])
    found[np.isneginf(found)] = np.nan
    return found
