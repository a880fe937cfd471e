"""Add the requests in flight on a hung engine to the data for an explanation.

These requests have no stored row yet. Their newest reports contain their age.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from store.columns.evidence import EvidenceRows
from store.requests.in_flight import in_flight_tables
from telemetry.engines import HUNG_S
from telemetry.in_flight import SELECTED_BY
from telemetry.window import Window

_COLUMNS: Final = ("received_unix_ns", "seen_unix_ns", "ttft_s", "engine", *SELECTED_BY)


def with_unfinished_requests(
    engine: Engine, found: EvidenceRows, windows: Sequence[Window]
) -> EvidenceRows:
    """Return the data of an explanation. If the samples show a hung engine, include its requests in
    flight."""
    if not _hung(found.engines):
        return found
    tables = [
        _as_rows(table, found.requests.schema)
        for window in windows
        for table in in_flight_tables(engine, _COLUMNS, window.from_unix_ns, window.to_unix_ns)
        if table.num_rows
    ]
    if not tables:
        return found
    requests = pa.concat_tables([found.requests, *tables], promote_options="default")
    return replace(found, requests=requests)


def _hung(engines: pa.Table) -> bool:
    if "last_step_age_s" not in engines.column_names:
        return False
    longest_s = pc.max(engines["last_step_age_s"]).as_py()
    return longest_s is not None and longest_s > HUNG_S


def _as_rows(reports: pa.Table, schema: pa.Schema) -> pa.Table:
    """The reports as rows. The age of a request counts as its latency."""
    age_ns = pc.subtract(reports["seen_unix_ns"], reports["received_unix_ns"])
    reports = reports.append_column("e2e_s", pc.divide(age_ns.cast(pa.float64()), 1e9))
    columns = {
        field.name: _cast(reports[field.name], field.type)
        for field in schema
        if field.name in reports.column_names
    }
    return pa.table(columns)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type).dictionary_encode()
    return column.cast(kind, safe=False)
