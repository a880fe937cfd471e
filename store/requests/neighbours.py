"""The requests that were in an engine at the same time as a given one.

`tailspan explain --request` and the Request page use it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import Engine

from store.queries import REQUEST_COLUMNS, Window, request_table

AROUND_NS: Final = 600 * 10**9
"""How long before a request those were received that can have been there with it."""

KEY: Final = ("received_unix_ns", "trace_id", "span_id")
OF_REQUEST: Final = (*KEY, "e2e_s", "replica", "engine")
"""What must be known of the request itself."""


def neighbours(engine: Engine, row: Mapping[str, Any], columns: Sequence[str]) -> pa.Table:
    """The requests that shared a request's engine while it was there, itself among them.

    Args:
        engine: from `open_database`.
        row: the request, with `OF_REQUEST`.
        columns: of each, those that the store has; `KEY` comes first in any case.

    Returns: in the order of receipt. Only the request itself if its replica is unknown.
    """
    received = int(row["received_unix_ns"])
    wanted = [name for name in dict.fromkeys((*KEY, *columns)) if name in REQUEST_COLUMNS]
    if row["replica"] is None:
        itself = {"trace_id": row["trace_id"], "span_id": row["span_id"]}
        window = Window(received, received + 1)
        return request_table(engine, window, equals=itself, columns=wanted)
    equals = {"replica": str(row["replica"])}
    if row["engine"] is not None:
        equals["engine"] = str(row["engine"])
    return request_table(
        engine,
        Window(max(0, received - AROUND_NS), received + int((row["e2e_s"] or 0.0) * 1e9) + 1),
        equals=equals,
        columns=wanted,
        ended_after_unix_ns=received,
    )


def place_of(table: pa.Table, row: Mapping[str, Any]) -> int:
    """Where among its neighbours the request stands."""
    keys = zip(table["trace_id"].to_pylist(), table["span_id"].to_pylist(), strict=True)
    return list(keys).index((row["trace_id"], row["span_id"]))
