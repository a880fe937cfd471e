"""Find the requests that were in an engine at the same time as a given request."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import Engine, true

from store.access.restricted import with_masked_rows
from store.queries import REQUEST_COLUMNS, request_table
from store.requests.best_source import counts
from telemetry.probes import PROBE_TENANT
from telemetry.window import Window

AROUND_NS: Final = 600 * 10**9
"""A request is not found if it was received more than this long before the given request."""

KEY: Final = ("received_unix_ns", "trace_id", "span_id")
OF_REQUEST: Final = (*KEY, "e2e_s", "replica", "engine")
"""The columns that the given request must have."""


def neighbours(engine: Engine, row: Mapping[str, Any], columns: Sequence[str]) -> pa.Table:
    """The requests that were in an engine together with a given request, in order.

    The result contains the given request and the prober's requests. Hidden requests have masked
    names. Only the given request is returned if its replica is unknown, or if its row is not the
    best one of the request (`best_source`).

    Args:
        row: with the columns `OF_REQUEST`.
    """
    engine = with_masked_rows(engine)
    received = int(row["received_unix_ns"])
    wanted = [name for name in dict.fromkeys((*KEY, *columns)) if name in REQUEST_COLUMNS]
    if row["replica"] is not None:
        equals = {"replica": str(row["replica"])}
        if row["engine"] is not None:
            equals["engine"] = str(row["engine"])
        window = Window(
            max(0, received - AROUND_NS), received + int((row["e2e_s"] or 0.0) * 1e9) + 1
        )
        found = request_table(
            engine,
            window,
            equals=equals,
            columns=wanted,
            ended_after_unix_ns=received,
            which=counts(window.from_unix_ns, window.to_unix_ns, {"tenant": PROBE_TENANT}),
        )
        if _key(row) in _keys(found):
            return found
    itself = {"trace_id": row["trace_id"], "span_id": row["span_id"]}
    return request_table(
        engine, Window(received, received + 1), equals=itself, columns=wanted, which=true()
    )


def place_of(table: pa.Table, row: Mapping[str, Any]) -> int:
    """The row index of the given request in its neighbours' table."""
    return _keys(table).index(_key(row))


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["trace_id"], row["span_id"]


def _keys(table: pa.Table) -> list[tuple[str, str]]:
    return list(zip(table["trace_id"].to_pylist(), table["span_id"].to_pylist(), strict=True))
