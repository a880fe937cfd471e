"""Compute the time that a request spent outside the server: in the network and in the client.

It is the client's duration minus the server's duration, so clock offsets do not matter. The
prober's time to connect is not included.
"""

from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import Engine

from store.columns.request_columns import request_columns
from store.requests.client_reports import ClientReport, Reports
from telemetry.probes import PROBE_TENANT
from telemetry.requests import Basis
from telemetry.window import Window

COLUMNS = ("trace_id", "request_id", "basis", "streamed", "ttft_s", "e2e_s")
"""All columns except `streamed` are required."""

AT_THE_EDGE = (Basis.HTTP.value, Basis.EDGE.value)
"""Values of `basis` for measurements that include the server's HTTP front end."""

SERVER_NEAR_NS = 300 * 10**9
"""Maximum difference between the clocks of a prober and a server."""


@dataclass(frozen=True, slots=True)
class NetworkTime:
    """A request's time outside the server, and the client's span from which it was computed."""

    network_s: float
    span: tuple[str, str] | None


def networks(engine: Engine, window: Window, requests: pa.Table) -> list[float | None]:
    """The seconds that each request spent outside the server, in the order of the table.

    If both TTFTs are known and the response was streamed, the result is the difference of the
    TTFTs. For other requests, it is the difference of the E2Es. It is None if there is not exactly
    one client report, or if the HTTP edge was not measured. It is also None if the client's
    duration is shorter than the server's duration.
    """
    found = pairs(engine, window, requests)
    return [None if pair is None else pair.network_s for pair in found]


def pairs(
    engine: Engine, window: Window, requests: pa.Table, *, whole: bool = False
) -> list[NetworkTime | None]:
    """The same result as `networks`, with the client's spans. If `whole` is true, only the E2Es are
    used."""
    reports = Reports.read(engine, window)
    if reports.empty:
        return [None] * requests.num_rows
    columns = [name for name in COLUMNS if name in requests.column_names]
    return [_pair(reports, row, whole) for row in requests.select(columns).to_pylist()]


def _pair(reports: Reports, row: dict[str, object], whole: bool) -> NetworkTime | None:
    if row["basis"] not in AT_THE_EDGE:
        return None
    report = reports.of(str(row["trace_id"]), row["request_id"])  # type: ignore[arg-type]
    if report is None:
        return None
    ttft_s, e2e_s = row["ttft_s"], row["e2e_s"]
    both = report.ttft_s is not None and ttft_s is not None
    if both and not whole and row.get("streamed") is not False:
        apart_s = report.ttft_s - ttft_s  # type: ignore[operator]
    else:
        apart_s = report.e2e_s - e2e_s  # type: ignore[operator]
    return NetworkTime(apart_s, report.span) if apart_s >= 0 else None


def server_times(engine: Engine, window: Window, probes: pa.Table) -> list[float | None]:
    """The TTFT of each probe at the server, in the order of the table. It is None in the same cases
    as in `networks`.

    Args:
        probes: a table with the columns `trace_id`, `request_id` and `first_event_s`.
    """
    found: list[float | None] = [None] * probes.num_rows
    wide = Window(
        max(window.from_unix_ns - SERVER_NEAR_NS, 0),
        min(window.to_unix_ns + SERVER_NEAR_NS, 2**63 - 1),
    )
    columns = ("trace_id", "request_id", "basis", "ttft_s")
    rows = request_columns(engine, wide, columns, {"tenant": PROBE_TENANT})
    if not rows.num_rows:
        return found
    ids = zip(
        *(probes[name].to_pylist() for name in ("trace_id", "request_id", "first_event_s")),
        strict=True,
    )
    reports = Reports(
        (
            trace_id,
            ClientReport(request_id, first_event_s, 0.0, 0, None, own_trace=True, place=place),
        )
        for place, (trace_id, request_id, first_event_s) in enumerate(ids)
    )
    several: set[int] = set()
    for row in rows.to_pylist():
        report = reports.of(row["trace_id"], row["request_id"])
        if report is None or report.place is None or row["basis"] not in AT_THE_EDGE:
            continue
        client_s, server_s = report.ttft_s, row["ttft_s"]
        if found[report.place] is not None:
            several.add(report.place)
        elif client_s is not None and server_s is not None and server_s <= client_s:
            found[report.place] = server_s
    return [None if place in several else each for place, each in enumerate(found)]
