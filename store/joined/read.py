"""Read joined requests from the store.

Rows are joined only if an engine loaded tokens through a KV connector. If no engine has reported a
KV connector, the result is empty.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sqlalchemy import Engine, and_

from store.joined.grouping import APART_NS, Chain, base_id, end_ns, spellings
from store.joined.joining import Outside, joined_requests
from store.joined.roles import Roles, stated_roles
from store.queries import request_table
from store.replicas.engine_starts import in_force
from store.requests.best_source import counts
from store.requests.client_reports import Reports, RequestIds
from store.requests.operations import operations_of, routers_of
from store.schema import REQUESTS
from telemetry.application_operations import ApplicationOperation, Operation
from telemetry.joined_request import HOP_COLUMNS, JoinedBasis, JoinedRequest, Row
from telemetry.probes import PROBE_TENANT
from telemetry.requests import Source
from telemetry.window import Window

MAX_ROWS: Final = 100_000
"""Maximum number of rows to read per window."""

MAX_OF_ONE: Final = 1_000
"""Maximum number of rows to read for one id."""

_ALL: Final[Mapping[str, str | None]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class JoinedAnswer:
    """The joined requests that began in a window, in order. `truncated` means that `max_rows` was
    reached, so requests may be missing."""

    requests: tuple[JoinedRequest, ...] = ()
    truncated: bool = False


def read_joined(
    engine: Engine,
    window: Window,
    equals: Mapping[str, str | None] = _ALL,
    max_rows: int = MAX_ROWS,
) -> JoinedAnswer:
    """The joined requests that began in a window, by the clock of the engine that answered.

    Args:
        equals: labels that at least one hop must have. The prober's requests are left out, unless
            `equals` selects their tenant.
        max_rows: maximum number of rows to read. The newest rows are read.
    """
    roles = stated_roles(in_force(engine, window.to_unix_ns))
    if not roles:
        return JoinedAnswer()
    wide = _window_of_all_hops(window)
    probes = {"tenant": PROBE_TENANT} if equals.get("tenant") == PROBE_TENANT else {}
    table = request_table(
        engine,
        wide,
        equals=probes,
        columns=[*HOP_COLUMNS, *(label for label in equals if label not in HOP_COLUMNS)],
        order_by="-received_unix_ns",
        limit=max_rows,
    )
    found = _join_rows(engine, wide, table.to_pylist(), roles)
    inside = (
        each
        for each in found
        if window.from_unix_ns <= each.engine_started_unix_ns < window.to_unix_ns
        and any(_matches(hop.row, equals) for hop in each.hops)
    )
    return JoinedAnswer(tuple(inside), table.num_rows >= max_rows)


def joined_request_of(engine: Engine, row: Row) -> JoinedRequest | None:
    """The joined request that contains a row, or None."""
    received = int(row["received_unix_ns"])
    roles = stated_roles(in_force(engine, received + APART_NS))
    if not roles:
        return None
    near = _window_of_all_hops(Window(received, received + 1))
    best = counts(near.from_unix_ns, near.to_unix_ns, {"trace_id": row["trace_id"]})
    same_id = REQUESTS.c.request_id.in_(sorted(spellings(row["request_id"])))
    rows: dict[tuple[str, str], Row] = {}
    for which in (REQUESTS.c.trace_id == row["trace_id"], same_id):
        table = request_table(
            engine, near, columns=HOP_COLUMNS, limit=MAX_OF_ONE, which=and_(best, which)
        )
        rows |= {(each["trace_id"], each["span_id"]): each for each in table.to_pylist()}
    for found in _join_rows(engine, near, list(rows.values()), roles):
        ids = {(hop.row["trace_id"], hop.row["span_id"]) for hop in found.hops}
        if (row["trace_id"], row["span_id"]) in ids:
            return found
    return None


def _window_of_all_hops(window: Window) -> Window:
    return Window(
        max(window.from_unix_ns - APART_NS, 0), min(window.to_unix_ns + APART_NS, 2**63 - 1)
    )


def _join_rows(
    engine: Engine, window: Window, table: Sequence[Row], roles: Roles
) -> list[JoinedRequest]:
    rows = [row for row in table if row["source"] != Source.CLIENT.value]
    spans: dict[str, tuple[int, int]] = {}
    for row in rows:
        begin, end = spans.get(row["trace_id"], (row["received_unix_ns"], 0))
        spans[row["trace_id"]] = min(begin, row["received_unix_ns"]), max(end, end_ns(row))
    routers = operations_of(engine, window, spans.keys(), Operation.ROUTER)
    by_id = _routers_by_id(
        engine, window, {row["request_id"] for row in rows if row["trace_id"] not in routers}
    )
    clients = Reports.read(
        engine, window, RequestIds.of((row["trace_id"], row["request_id"]) for row in rows)
    )

    def outside(chain: Chain) -> list[Outside]:
        found = []
        last = chain.links[-1].row
        if (report := clients.of(last["trace_id"], last["request_id"])) is not None:
            found.append(
                Outside(report.received_unix_ns, report.e2e_s, report.ttft_s, JoinedBasis.CLIENT)
            )
        for trace_id in {link.row["trace_id"] for link in chain.links} & routers.keys():
            found += _router_reports(routers[trace_id], last, spans[trace_id])
        if not found:
            same_id = by_id.get(base_id(last["request_id"]) or "", ())
            about = _router_reports(same_id, last, spans[last["trace_id"]], clocks_agree=True)
            found += about if len(about) == 1 else ()
        return found

    return joined_requests(rows, roles, outside)


def _routers_by_id(
    engine: Engine, window: Window, request_ids: Set[str | None]
) -> Mapping[str, Sequence[ApplicationOperation]]:
    """Map the response id without vLLM's prefix to the routers' reports. Without a trace context,
    only this id connects a report with the engines' rows."""
    ids = {each for request_id in request_ids for each in spellings(request_id)}
    found: defaultdict[str, list[ApplicationOperation]] = defaultdict(list)
    for response_id, reports in routers_of(engine, window, ids).items():
        found[base_id(response_id) or ""] += reports
    return found


def _router_reports(
    found: Sequence[ApplicationOperation],
    last: Row,
    trace: tuple[int, int],
    *,
    clocks_agree: bool = False,
) -> list[Outside]:
    """Return the reports of routers about a request, the longest first.

    A trace may have several calls. A report is about this request if it contains the middle of the
    last hop. If there is only one report, and it overlaps no row, the router's clock is wrong. This
    report is used too.

    Args:
        trace: start of the trace's first row, and end of its last row (unix nanoseconds).
        clocks_agree: whether to ignore reports with wrong clocks. This is required for reports that
            were found by the response's id, because clients can choose this id.
    """
    middle_ns = (int(last["received_unix_ns"]) + end_ns(last)) // 2

    def is_about(each: ApplicationOperation) -> bool:
        end_unix_ns = each.at_unix_ns + round(each.length_s * 1e9)
        apart = end_unix_ns < trace[0] or trace[1] < each.at_unix_ns
        return each.at_unix_ns <= middle_ns <= end_unix_ns or (
            apart and len(found) == 1 and not clocks_agree
        )

    return [
        Outside(each.at_unix_ns, each.length_s, each.ttft_s, JoinedBasis.ROUTER)
        for each in sorted(found, key=lambda each: (-each.length_s, each.span_id))
        if is_about(each)
    ]


def _matches(row: Row, equals: Mapping[str, str | None]) -> bool:
    return all(_text(row.get(label)) == value for label, value in equals.items())


def _text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
