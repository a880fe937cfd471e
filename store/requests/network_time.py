"""Compute the time that a client waited outside the server: in the network and in the client.

This is the client's duration minus the server's duration of the same request, computed from both
rows. Only durations are subtracted, so clock offsets do not matter. The clients are instrumented
applications and the prober. For probes, the time to connect is not included.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from sqlalchemy import Engine, select

from store.columns.request_columns import request_columns
from store.connections import reading
from store.queries import Window
from store.requests.best_source import NEAR_NS, not_from_a_cache, same_request
from store.schema import PROBES, REQUESTS
from telemetry.probes import PROBE_TENANT, SET_UP_PARTS, ProbeOutcome
from telemetry.requests import Basis, Source

COLUMNS = ("trace_id", "request_id", "basis", "streamed", "ttft_s", "e2e_s")
"""Required columns of a table of requests; `streamed` is optional."""

AT_THE_EDGE = (Basis.HTTP.value, Basis.EDGE.value)
"""The values of `basis` that include the HTTP edge. For other values, the difference would include
server time.
"""

SERVER_NEAR_NS = 300 * 10**9
"""Maximum difference between the clocks of a prober and a server, beyond which rows are not
searched. Each hour more takes longer to search."""


@dataclass(frozen=True, slots=True)
class Report:
    """A client's report of a request, with timestamps on the client's clock."""

    request_id: str | None
    ttft_s: float | None
    e2e_s: float
    received_unix_ns: int
    clock_ahead_s: float | None
    own_trace: bool = False
    """Whether the trace contains only this request. True for the prober's traces."""
    span: tuple[str, str] | None = None
    """The trace id and the span id of the client's span, or None for a probe."""
    place: int | None = None
    """The row of the report in a table."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A request's time outside the server, and its client's span."""

    network_s: float
    span: tuple[str, str] | None


def networks(engine: Engine, window: Window, requests: pa.Table) -> list[float | None]:
    """Return the seconds that each request spent outside the server, in the order of the table.

    The time is the difference of the TTFTs if both sides measured TTFT, else of the E2Es. It is
    None if the HTTP edge was not measured, if the number of matching client reports is not one, or
    if the client's duration is shorter than the server's.

    Args:
        engine: from `open_database`.
        window: the window of the requests.
        requests: a table with `COLUMNS`.
    """
    found = pairs(engine, window, requests)
    return [None if pair is None else pair.network_s for pair in found]


def pairs(
    engine: Engine, window: Window, requests: pa.Table, *, whole: bool = False
) -> list[Pair | None]:
    """Return each request's time outside the server with the client's span. See `networks`.

    Args:
        engine: from `open_database`.
        window: the window of the requests.
        requests: a table with `COLUMNS`.
        whole: whether to subtract the E2Es, even if both sides measured a TTFT.
    """
    reports = Reports.read(engine, window)
    if reports.empty:
        return [None] * requests.num_rows
    columns = [name for name in COLUMNS if name in requests.column_names]
    return [_pair(reports, row, whole) for row in requests.select(columns).to_pylist()]


class Reports:
    """Clients' reports by request id, or by trace id if a report has no request id."""

    def __init__(self, found: Iterable[tuple[str, Report]]) -> None:
        self._by_id: dict[str, list[Report]] = defaultdict(list)
        self._by_trace: dict[str, list[Report]] = defaultdict(list)
        for trace_id, report in found:
            if report.request_id is None or report.own_trace:
                self._by_trace[trace_id].append(report)
            if report.request_id is not None:
                self._by_id[report.request_id].append(report)

    @classmethod
    def read(cls, engine: Engine, window: Window) -> Self:
        """Read the reports of requests in a window, and shortly before and after the window."""
        return cls([*_read(engine, window), *_read_probes(engine, window)])

    @property
    def empty(self) -> bool:
        """Return whether there is no report."""
        return not (self._by_id or self._by_trace)

    def of(self, trace_id: str, request_id: str | None) -> Report | None:
        """Return the report of a request, or None if there is not exactly one."""
        found: list[Report] = []
        if request_id is not None:
            prompt_of = request_id.rpartition("-")[0]
            found = self._by_id.get(request_id, []) or (
                self._by_id.get(prompt_of, []) if same_request(prompt_of, request_id) else []
            )
        found = found or self._by_trace.get(trace_id, [])
        return found[0] if len(found) == 1 else None


def _read(engine: Engine, window: Window) -> Iterable[tuple[str, Report]]:
    statement = select(
        REQUESTS.c.trace_id,
        REQUESTS.c.request_id,
        REQUESTS.c.ttft_s,
        REQUESTS.c.e2e_s,
        REQUESTS.c.received_unix_ns,
        REQUESTS.c.clock_ahead_s,
        REQUESTS.c.span_id,
    ).where(
        REQUESTS.c.source == Source.CLIENT.value,
        # An answer from a cache may have the id of the request that first received this answer.
        not_from_a_cache(window.from_unix_ns, window.to_unix_ns),
        REQUESTS.c.received_unix_ns >= max(window.from_unix_ns - NEAR_NS, 0),
        REQUESTS.c.received_unix_ns < min(window.to_unix_ns + NEAR_NS, 2**63 - 1),
    )
    with reading(engine) as connection:
        return [
            (
                trace_id,
                Report(
                    *(request_id, ttft_s, e2e_s, received_unix_ns, ahead_s),
                    span=(trace_id, span_id),
                ),
            )
            for trace_id, request_id, ttft_s, e2e_s, received_unix_ns, ahead_s, span_id in (
                connection.execute(statement)
            )
        ]


def _read_probes(engine: Engine, window: Window) -> Iterable[tuple[str, Report]]:
    """Return the prober's reports, without the time to connect."""
    probes = PROBES.c
    statement = select(
        probes.trace_id,
        probes.request_id,
        probes.first_event_s,
        probes.e2e_s,
        probes.at_unix_ns,
        probes.clock_ahead_s,
        *(probes[name] for name in SET_UP_PARTS),
    ).where(
        probes.e2e_s.is_not(None),
        probes.outcome != ProbeOutcome.CACHED.value,
        probes.at_unix_ns >= max(window.from_unix_ns - NEAR_NS, 0),
        probes.at_unix_ns < min(window.to_unix_ns + NEAR_NS, 2**63 - 1),
    )
    with reading(engine) as connection:
        return [
            (
                trace_id,
                Report(
                    *(request_id, ttft_s, e2e_s),
                    at_unix_ns + int(sum(filter(None, before_s)) * 1e9),
                    ahead_s,
                    own_trace=True,
                ),
            )
            for trace_id, request_id, ttft_s, e2e_s, at_unix_ns, ahead_s, *before_s in (
                connection.execute(statement)
            )
        ]


def _pair(reports: Reports, row: dict[str, object], whole: bool) -> Pair | None:
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
    return Pair(apart_s, report.span) if apart_s >= 0 else None


def server_times(engine: Engine, window: Window, probes: pa.Table) -> list[float | None]:
    """Return the TTFT of each probe at the server, in the order of the table.

    The result is None if no row of the server or several rows match, if the HTTP edge was not
    measured, or if the server reports a longer time than the client.

    Args:
        engine: from `open_database`.
        window: the window of the probes.
        probes: a table with `trace_id`, `request_id` and `first_event_s`.
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
        (trace_id, Report(request_id, first_event_s, 0.0, 0, None, own_trace=True, place=place))
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
