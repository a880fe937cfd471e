"""Compute bounds for the offset between a server's clock and its clients' clocks.

θ is the time by which the server's clock is ahead of the client's clock. The server receives a
request after the client sent it, so θ ≤ (server's start − client's start). The client receives the
answer after the server sent it, so θ ≥ (server's end − client's end). Both bounds hold for any
network delay.
"""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from sqlalchemy import Engine

from store.queries import request_table
from store.requests.client_reports import ClientReport, Reports
from telemetry.requests import Basis, Outcome
from telemetry.window import Window

MIN_REQUESTS: Final = 3
"""Minimum number of requests per replica. A single report may be wrong."""
MAX_REQUESTS: Final = 5_000
"""Maximum number of requests. The newest are read."""
_COLUMNS: Final = (
    *("trace_id", "request_id", "basis", "replica", "outcome"),
    *("received_unix_ns", "e2e_s", "clock_ahead_s"),
)


@dataclass(frozen=True, slots=True)
class Offset:
    """Bounds in seconds for how far a replica's clock is ahead of its clients' clocks."""

    replica: str
    low_s: float
    high_s: float
    requests: int


def offsets(engine: Engine, window: Window) -> list[Offset]:
    """The bounds of each replica's clock offset, sorted by name.

    The bounds are medians over the requests that both the server and the client reported. Requests
    with corrected timestamps are ignored. Replicas with fewer than `MIN_REQUESTS` are left out.
    """
    reports = Reports.read(engine, window)
    if reports.empty:
        return []
    table = request_table(
        engine, window, columns=_COLUMNS, order_by="-received_unix_ns", limit=MAX_REQUESTS
    )
    bounds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in table.to_pylist():
        found = _bounds_s(reports, row)
        if found is not None:
            bounds[row["replica"]].append(found)
    return [
        Offset(
            replica,
            median(low for low, _ in each),
            median(high for _, high in each),
            len(each),
        )
        for replica, each in sorted(bounds.items())
        if len(each) >= MIN_REQUESTS
    ]


def _bounds_s(reports: Reports, row: dict[str, Any]) -> tuple[float, float] | None:
    if (
        row["basis"] == Basis.CLIENT.value
        or row["replica"] is None
        or row["clock_ahead_s"] is not None
        or not Outcome(row["outcome"]).answered  # the client may have disconnected
    ):
        return None
    report: ClientReport | None = reports.of(row["trace_id"], row["request_id"])
    # If a client's report has a shorter duration than the server's row, it is about a different
    # request.
    if report is None or report.clock_ahead_s is not None or report.e2e_s < row["e2e_s"]:
        return None
    high_s = (row["received_unix_ns"] - report.received_unix_ns) / 1e9
    return high_s + row["e2e_s"] - report.e2e_s, high_s
