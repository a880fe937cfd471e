"""Replace the rows of prefill and decode engines by one row per user's request, for objectives.

The decode engine's row gets the times of the joined request, measured at the engines. Reports of
clients and routers are not used, because they may arrive after the request was counted. Earlier
attempts, and successful prefills with at most one token, are left out. A failed prefill is kept,
because the user received the error. A trace may contain several calls, so the requests are joined
from all rows of the trace, including rows that are not in the given table.
"""

from collections.abc import Collection, Sequence, Set
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, select

from store.connections import reading
from store.joined.grouping import APART_NS, Chain, chains, spellings
from store.joined.joining import times_of
from store.joined.roles import Roles
from store.queries import request_schema
from store.requests.best_source import counts
from store.schema import REQUESTS
from telemetry.joined_request import HOP_COLUMNS, EngineRole, Row
from telemetry.requests import Outcome, Source

COLUMNS: Final = HOP_COLUMNS
AT_ONCE: Final = 5_000
"""Number of rows that are joined at a time. A statement has up to four ids per row."""
_Span = tuple[str, str]
EngineKey = tuple[str, int | None]
BoolArray = NDArray[np.bool_]


class _Times(NamedTuple):
    received_unix_ns: int
    e2e_s: float
    ttft_s: float | None
    first_content_s: float | None


class UserRequests(NamedTuple):
    """One row for each user's request, in the order of the rows that were joined."""

    table: pa.Table
    without_prefill: int = 0
    """Number of rows whose engine loaded a KV cache, but whose prefill row was not found. Their
    times are the decode engine's."""


_DONE: Final = (Outcome.STOP.value, Outcome.LENGTH.value)


def user_requests(engine: Engine, rows: pa.Table, roles: Roles) -> pa.Table:
    """Return one row for each user's request, in the order of the given rows."""
    return join_user_requests(engine, rows, roles).table


def join_user_requests(engine: Engine, rows: pa.Table, roles: Roles) -> UserRequests:
    """Return one row for each user's request, and the number of rows without their prefill.

    Args:
        rows: rows of engines, with at least `COLUMNS`. Other columns are kept.
    """
    prefills = _prefill_engines(roles)
    if not prefills or not rows.num_rows:
        return UserRequests(rows)
    prefilled = _served_by(rows, prefills)
    kept = ~is_prefill_half(rows, roles)
    rows = rows.filter(pa.array(kept))
    decodes = rows.filter(pa.array(~prefilled[kept])).select(COLUMNS)
    replicas = sorted({replica for replica, _ in prefills})
    users: dict[_Span, _Times | None] = {}
    with reading(engine) as connection:
        for batch in decodes.to_batches(max_chunksize=AT_ONCE):
            for chain in _join_prefills(connection, batch.to_pylist(), replicas, roles):
                *before, last = (_span(link.row) for link in chain.links)
                users |= dict.fromkeys(before)
                found = times_of(chain)
                users[last] = _Times(
                    found.axis.start_ns, found.e2e_s, found.ttft_s, found.first_content_s
                )
    if users:
        rows = _with_users_times(rows, users)
    return UserRequests(rows, _without_prefill(rows, users))


def is_prefill_half(rows: pa.Table, roles: Roles) -> BoolArray:
    """Return which rows are successful prefills of a prefill engine: (n,). They are not requests of
    users.

    Args:
        rows: rows with replica, engine, outcome and output_tokens.
    """
    done = pc.is_in(rows["outcome"].cast(pa.string()), value_set=pa.array(_DONE)).to_numpy()
    one_token = pc.less_equal(pc.fill_null(rows["output_tokens"], 0), 1).to_numpy()
    half: BoolArray = _served_by(rows, _prefill_engines(roles)) & done & one_token
    return half


def _prefill_engines(roles: Roles) -> Set[EngineKey]:
    return {key for key, role in roles.items() if role is EngineRole.PREFILL}


def _served_by(rows: pa.Table, engines: Set[EngineKey]) -> BoolArray:
    keys = zip(rows["replica"].to_pylist(), rows["engine"].to_pylist(), strict=True)
    return np.array([key in engines for key in keys], dtype=bool)


def _without_prefill(rows: pa.Table, joined: Collection[_Span]) -> int:
    loaded = pc.greater(pc.fill_null(rows["external_cached_tokens"], 0), 0)
    some = rows.filter(loaded).select(["trace_id", "span_id"])
    return sum(each not in joined for each in zip(*some.to_pydict().values(), strict=True))


def _join_prefills(
    connection: Connection, decodes: Sequence[Row], replicas: Sequence[str], roles: Roles
) -> list[Chain]:
    by_trace = _rows_near(connection, decodes, "trace_id", {row["trace_id"] for row in decodes})
    traces = {row["trace_id"] for row in by_trace if row["replica"] in replicas}
    rest = [row for row in decodes if row["trace_id"] not in traces]
    ids = {each for row in rest for each in spellings(row["request_id"])}
    by_id = _rows_near(connection, rest, "request_id", ids)
    asked = {_span(row): row for row in decodes}
    hops = {**{_span(row): row for row in (*by_trace, *by_id)}, **asked}
    return [
        chain
        for chain in chains(hops.values(), roles)
        if len(chain.links) > 1
        and chain.links[-1].role is EngineRole.DECODE
        and not asked.keys().isdisjoint(_span(link.row) for link in chain.links)
    ]


def _rows_near(
    connection: Connection, decodes: Sequence[Row], name: str, ids: Set[str]
) -> list[Row]:
    """Read the engines' rows that have one of these ids and may belong to a decode's request."""
    if not ids:
        return []
    begins = [row["received_unix_ns"] for row in decodes]
    from_unix_ns = max(min(begins) - APART_NS, 0)
    to_unix_ns = min(max(begins) + APART_NS, 2**63 - 1)
    statement = select(*(REQUESTS.c[column] for column in HOP_COLUMNS)).where(
        REQUESTS.c[name].in_(sorted(ids)),
        REQUESTS.c.source != Source.CLIENT.value,
        REQUESTS.c.received_unix_ns >= from_unix_ns,
        REQUESTS.c.received_unix_ns <= to_unix_ns,
        counts(from_unix_ns, to_unix_ns, {name: None}),
    )
    # `dict(row)` of a mapping takes several times as long.
    return [dict(zip(HOP_COLUMNS, row, strict=True)) for row in connection.execute(statement)]


def _with_users_times(rows: pa.Table, users: dict[_Span, _Times | None]) -> pa.Table:
    """The table without the other hops of each joined request."""
    spans = [*zip(rows["trace_id"].to_pylist(), rows["span_id"].to_pylist(), strict=True)]
    joined = [users.get(each) for each in spans]
    is_joined = pa.array([each is not None for each in joined])
    for name in _Times._fields:
        known = [each and getattr(each, name) for each in joined]
        kind = request_schema([name]).field(0).type
        column = pc.if_else(is_joined, pa.array(known, kind), rows[name].cast(kind))
        rows = rows.set_column(rows.column_names.index(name), name, column)
    kept = [each not in users or users[each] is not None for each in spans]
    return rows.filter(pa.array(kept))


def _span(row: Row) -> _Span:
    return row["trace_id"], row["span_id"]
