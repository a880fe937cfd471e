"""The time that a client waited beyond the server's part: the network, and the client itself.

Only two measurements of one request show it, so it is computed on demand from the client's row and
the server's row. Only durations are subtracted, so the two clocks do not matter.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from sqlalchemy import Engine, select

from store.connections import reading
from store.queries import Window
from store.requests.best_source import NEAR_NS, same_request
from store.schema import REQUESTS
from telemetry.requests import Basis, Source

COLUMNS = ("trace_id", "request_id", "basis", "streamed", "ttft_s", "e2e_s")
"""What a table of requests must have for this; `streamed` may be left out."""

AT_THE_EDGE = (Basis.HTTP.value, Basis.EDGE.value)
"""Only from the server's edge on is all the rest the network's."""


@dataclass(frozen=True, slots=True)
class Report:
    """The values of a client's span. Instants are its clock's."""

    request_id: str | None
    ttft_s: float | None
    e2e_s: float
    received_unix_ns: int
    clock_ahead_s: float | None


def networks(engine: Engine, window: Window, requests: pa.Table) -> list[float | None]:
    """Seconds of each request that passed outside the server, in the order of the table.

    To the first byte if both measured it, else to the last. None if no client reported the
    request, if several reports may match it, if the server's edge was not seen, or if the client
    measured less than the server: then they did not measure the same.

    Args:
        engine: from `open_database`.
        window: that the requests are of.
        requests: with `COLUMNS`.
    """
    reports = Reports.read(engine, window)
    if reports.empty:
        return [None] * requests.num_rows
    columns = [name for name in COLUMNS if name in requests.column_names]
    return [_network_s(reports, row) for row in requests.select(columns).to_pylist()]


class Reports:
    """Clients' reports by request id, and those without one by trace."""

    def __init__(self, found: Iterable[tuple[str, Report]]) -> None:
        self._by_id: dict[str, list[Report]] = defaultdict(list)
        self._by_trace: dict[str, list[Report]] = defaultdict(list)
        for trace_id, report in found:
            if report.request_id is None:
                self._by_trace[trace_id].append(report)
            else:
                self._by_id[report.request_id].append(report)

    @classmethod
    def read(cls, engine: Engine, window: Window) -> Self:
        """Those of requests in this window, and near it."""
        return cls(_read(engine, window))

    @property
    def empty(self) -> bool:
        """Whether no client reported anything."""
        return not (self._by_id or self._by_trace)

    def of(self, trace_id: str, request_id: str | None) -> Report | None:
        """The one report of this request."""
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
    ).where(
        REQUESTS.c.source == Source.CLIENT.value,
        REQUESTS.c.received_unix_ns >= max(window.from_unix_ns - NEAR_NS, 0),
        REQUESTS.c.received_unix_ns < min(window.to_unix_ns + NEAR_NS, 2**63 - 1),
    )
    with reading(engine) as connection:
        return [(row[0], Report(*row[1:])) for row in connection.execute(statement)]


def _network_s(reports: Reports, row: dict[str, object]) -> float | None:
    if row["basis"] not in AT_THE_EDGE:
        return None
    report = reports.of(str(row["trace_id"]), row["request_id"])  # type: ignore[arg-type]
    if report is None:
        return None
    ttft_s, e2e_s = row["ttft_s"], row["e2e_s"]
    if report.ttft_s is not None and ttft_s is not None and row.get("streamed") is not False:
        apart_s = report.ttft_s - ttft_s  # type: ignore[operator]
    else:
        apart_s = report.e2e_s - e2e_s  # type: ignore[operator]
    return apart_s if apart_s >= 0 else None
