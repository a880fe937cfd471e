"""Convert Arrow columns to numpy arrays. Pure.

Only this module converts null to NaN. Pages show NaN as a gap or a dash.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def floats(table: pa.Table, name: str) -> FloatArray:
    """Return a numeric column as floats, with NaN in place of null."""
    column = table.column(name).cast(pa.float64())
    result: FloatArray = np.asarray(column.to_numpy(), dtype=np.float64)
    return result


def instants(table: pa.Table, name: str) -> IntArray:
    """Return a column of unix nanoseconds as integers, because floats would round the values.

    The column must have no nulls.
    """
    result: IntArray = np.asarray(table.column(name).cast(pa.int64()).to_numpy(), dtype=np.int64)
    return result


def texts(table: pa.Table, name: str) -> list[Any]:
    """Return a column of strings, with None in place of null."""
    result: list[Any] = table.column(name).to_pylist()
    return result
