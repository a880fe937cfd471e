"""Arrow columns as numpy arrays. Pure.

Only this module converts null to NaN, for arithmetic. Pages show NaN as a gap or a dash.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def floats(table: pa.Table, name: str) -> FloatArray:
    """Return a numeric column, NaN where it is null."""
    column = table.column(name).cast(pa.float64())
    result: FloatArray = np.asarray(column.to_numpy(), dtype=np.float64)
    return result


def instants(table: pa.Table, name: str) -> IntArray:
    """Return a column of unix nanoseconds without nulls, as integers: floats would round them."""
    result: IntArray = np.asarray(table.column(name).cast(pa.int64()).to_numpy(), dtype=np.int64)
    return result


def texts(table: pa.Table, name: str) -> list[Any]:
    """Return a column of strings, None where it is null."""
    result: list[Any] = table.column(name).to_pylist()
    return result
