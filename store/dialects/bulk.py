"""Many rows at once, in and out, with the driver's own means."""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
from sqlalchemy import Connection, Table

Insert = Callable[[Connection, Sequence[tuple[object, ...]]], None]
"""Adds rows, each in its table's order of columns; one whose key is there is left out."""

IN_BULK: Final = "tailspan_in_bulk"
"""The execution option of a question with many rows for an answer."""


def arrow_schema(table: Table) -> pa.Schema:
    """A table's columns in Arrow, with what may be null."""
    types = {
        str: pa.string(),
        int: pa.int64(),
        float: pa.float64(),
        bool: pa.bool_(),
        bytes: pa.binary(),
    }
    return pa.schema(
        pa.field(column.name, types[column.type.python_type], nullable=bool(column.nullable))
        for column in table.columns
    )
