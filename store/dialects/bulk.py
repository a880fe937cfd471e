"""Types and options for reading and writing many rows at once."""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
from sqlalchemy import Connection, Table

Insert = Callable[[Connection, Sequence[tuple[object, ...]]], None]
"""A function that adds rows, with values in the order of the columns. Rows whose key is stored are
ignored."""

IN_BULK: Final = "tailspan_in_bulk"
"""Execution option of a query with many rows."""


def arrow_schema(table: Table) -> pa.Schema:
    """The Arrow schema of a table, with the nullability of its columns."""
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
