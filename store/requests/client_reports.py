"""Read what clients and probes report about requests. The reports are found by request id or trace
id."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import ColumnElement, Engine, or_, select, true
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from store.connections import reading
from store.queries import BATCH_ROWS
from store.requests.best_source import NEAR_NS, not_from_a_cache, same_request
from store.requests.operations import MAX_IN_SQL
from store.schema import PROBES, REQUESTS
from telemetry.probes import SET_UP_PARTS, ProbeOutcome
from telemetry.requests import Source
from telemetry.window import Window


@dataclass(frozen=True, slots=True)
class ClientReport:
    """A client's report of a request, with times on the client's clock."""

    request_id: str | None
    ttft_s: float | None
    e2e_s: float
    received_unix_ns: int
    clock_ahead_s: float | None
    own_trace: bool = False
    span: tuple[str, str] | None = None
    """Trace id and span id, or None for a probe."""
    place: int | None = None


@dataclass(frozen=True, slots=True)
class RequestIds:
    """The ids of the requests whose reports are read."""

    trace_ids: frozenset[str]
    request_ids: frozenset[str]

    @classmethod
    def of(cls, ids: Iterable[tuple[str, str | None]]) -> Self:
        """The ids under which clients may report these requests."""
        traces: set[str] = set()
        requests: set[str] = set()
        for trace_id, request_id in ids:
            traces.add(trace_id)
            if request_id is not None:
                requests.update((request_id, request_id.rpartition("-")[0]))
        return cls(frozenset(traces), frozenset(requests))

    def has(self, trace_id: str, request_id: str | None) -> bool:
        """Whether a report has one of these ids."""
        return trace_id in self.trace_ids or request_id in self.request_ids

    def condition(self, columns: ReadOnlyColumnCollection[str, Any]) -> ColumnElement[bool]:
        """The SQL condition for rows for which `has` is true. If there are many ids, the condition
        is true for all rows."""
        if len(self.trace_ids) + len(self.request_ids) > MAX_IN_SQL:
            return true()
        return or_(
            columns["trace_id"].in_(sorted(self.trace_ids)),
            columns["request_id"].in_(sorted(self.request_ids)),
        )


class Reports:
    """Maps request ids to clients' reports. Reports without a request id are found by trace id."""

    def __init__(self, found: Iterable[tuple[str, ClientReport]]) -> None:
        self._by_id: dict[str, list[ClientReport]] = defaultdict(list)
        self._by_trace: dict[str, list[ClientReport]] = defaultdict(list)
        for trace_id, report in found:
            if report.request_id is None or report.own_trace:
                self._by_trace[trace_id].append(report)
            if report.request_id is not None:
                self._by_id[report.request_id].append(report)

    @classmethod
    def read(cls, engine: Engine, window: Window, wanted: RequestIds | None = None) -> Self:
        """Read the reports of requests in a window. A margin allows for clock differences."""
        return cls([*_read(engine, window, wanted), *_read_probes(engine, window, wanted)])

    @property
    def empty(self) -> bool:
        """Whether there is no report."""
        return not (self._by_id or self._by_trace)

    def of(self, trace_id: str, request_id: str | None) -> ClientReport | None:
        """A request's report, or None if there is not exactly one report."""
        found: list[ClientReport] = []
        if request_id is not None:
            prompt_of = request_id.rpartition("-")[0]
            found = self._by_id.get(request_id, []) or (
                self._by_id.get(prompt_of, []) if same_request(prompt_of, request_id) else []
            )
        found = found or self._by_trace.get(trace_id, [])
        return found[0] if len(found) == 1 else None


def _read(
    engine: Engine, window: Window, wanted: RequestIds | None
) -> Iterable[tuple[str, ClientReport]]:
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
        # An answer from a cache may contain the id of the earlier request that the model answered.
        not_from_a_cache(window.from_unix_ns, window.to_unix_ns),
        REQUESTS.c.received_unix_ns >= max(window.from_unix_ns - NEAR_NS, 0),
        REQUESTS.c.received_unix_ns < min(window.to_unix_ns + NEAR_NS, 2**63 - 1),
        *(() if wanted is None else (wanted.condition(REQUESTS.c),)),
    )
    with reading(engine) as connection:
        rows = connection.execution_options(yield_per=BATCH_ROWS).execute(statement)
        return [
            (
                trace_id,
                ClientReport(
                    *(request_id, ttft_s, e2e_s, received_unix_ns, ahead_s),
                    span=(trace_id, span_id),
                ),
            )
            for trace_id, request_id, ttft_s, e2e_s, received_unix_ns, ahead_s, span_id in rows
            if wanted is None or wanted.has(trace_id, request_id)
        ]


def _read_probes(
    engine: Engine, window: Window, wanted: RequestIds | None
) -> Iterable[tuple[str, ClientReport]]:
    """The prober's reports. Their durations exclude the time to connect."""
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
        *(() if wanted is None else (wanted.condition(probes),)),
    )
    with reading(engine) as connection:
        rows = connection.execution_options(yield_per=BATCH_ROWS).execute(statement)
        return [
            (
                trace_id,
                ClientReport(
                    *(request_id, ttft_s, e2e_s),
                    at_unix_ns + int(sum(filter(None, before_s)) * 1e9),
                    ahead_s,
                    own_trace=True,
                ),
            )
            for trace_id, request_id, ttft_s, e2e_s, at_unix_ns, ahead_s, *before_s in rows
            if wanted is None or wanted.has(trace_id, request_id)
        ]
