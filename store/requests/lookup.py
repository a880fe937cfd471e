"""Find requests by an id that a user entered, or that a link contains.

    TRACE/SPAN        the row with this trace and span, as in links
    32 hex digits     all requests of the trace
    anything else     the server's request id, or the client's id without the prefix `chatcmpl-`

Only the best source's row is returned, except for TRACE/SPAN. There is no index by id, because it
would slow down inserts. The last hour is searched first, and then longer ranges.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Engine, func, select

from store.connections import reading
from store.queries import request_schema
from store.requests.best_source import same_request
from store.schema import REQUESTS
from telemetry.labels import MAX_ID_CHARS
from telemetry.requests import Source

COLUMNS: Final = (
    *("received_unix_ns", "trace_id", "span_id", "request_id", "source"),
    *("model", "tenant", "replica", "engine", "outcome", "e2e_s", "ttft_s"),
)

MAX_MATCHES: Final = 50

FIRST_NS: Final = 3600 * 10**9
RANGE_FACTOR: Final = 4
"""The search ranges are 1 h, 4 h, 16 h, and so on."""
RELATED_NS: Final = 3600 * 10**9
"""This period before the first match is searched too, because an agent may reuse an id."""

_RANK: Final = {Source.INSTRUMENTATION: 0, Source.SIMULATOR: 0, Source.NATIVE: 1, Source.CLIENT: 2}
_PAIR: Final = re.compile(r"([0-9a-f]{32})/([0-9a-f]{16})")
_TRACE: Final = re.compile(r"[0-9a-f]{32}")


def find_requests(engine: Engine, words: str) -> pa.Table:
    """Return up to `MAX_MATCHES` requests with an id, the earliest first. If no request has the id,
    the search reads every row."""
    words = words.strip()
    rows: list[dict[str, Any]] = []
    if pair := _PAIR.fullmatch(words.lower()):
        rows = _rows(engine, REQUESTS.c.trace_id == pair[1], REQUESTS.c.span_id == pair[2])
    elif words and len(words) <= MAX_ID_CHARS:
        if _TRACE.fullmatch(words.lower()):
            rows = _rows_of_best_source(_rows(engine, REQUESTS.c.trace_id == words.lower()))
        rows = rows or _rows_of_best_source(
            _rows(engine, REQUESTS.c.request_id.in_(_spellings(words)))
        )
    return pa.Table.from_pylist(rows, schema=request_schema(COLUMNS))


def _spellings(words: str) -> Sequence[str]:
    """The ids that vLLM can derive from an X-Request-Id."""
    return (words, f"chatcmpl-{words}", f"cmpl-{words}", f"cmpl-{words}-0", f"{words}-0")


def _rows(engine: Engine, *conditions: ColumnElement[bool]) -> list[dict[str, Any]]:
    instant = REQUESTS.c.received_unix_ns
    # If min and max were in one query, SQLite would read the whole index.
    ends = [select(which(instant)).scalar_subquery() for which in (func.min, func.max)]
    with reading(engine) as connection:
        oldest, newest = connection.execute(select(*ends)).one()
        if oldest is None:
            return []
        until, length = newest + 1, FIRST_NS
        while until > oldest:
            if found := _matching_rows(connection, conditions, until - length, until):
                kin_from = found[0]["received_unix_ns"] - RELATED_NS
                kin = _matching_rows(connection, conditions, kin_from, until - length)
                return [*kin, *found][:MAX_MATCHES]
            until, length = until - length, length * RANGE_FACTOR
    return []


def _matching_rows(
    connection: Connection,
    conditions: Sequence[ColumnElement[bool]],
    from_unix_ns: int,
    to_unix_ns: int,
) -> list[dict[str, Any]]:
    instant = REQUESTS.c.received_unix_ns
    # In a search by trace id, the inner query reads only the index of the primary key.
    when = select(instant).where(instant >= from_unix_ns, instant < to_unix_ns, *conditions)
    statement = (
        select(*(REQUESTS.c[name] for name in COLUMNS))
        .where(instant.in_(when), *conditions)
        .order_by(instant)
        .limit(MAX_MATCHES)
    )
    return [dict(row._mapping) for row in connection.execute(statement)]


def _rows_of_best_source(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if not any(_is_better(other, row) for other in rows)]


def _is_better(other: dict[str, Any], row: dict[str, Any]) -> bool:
    if _rank(other) >= _rank(row):
        return False
    if row["request_id"] is None or other["request_id"] is None:
        return bool(other["trace_id"] == row["trace_id"])
    return same_request(row["request_id"], other["request_id"])


def _rank(row: dict[str, Any]) -> int:
    return _RANK.get(row["source"], 0)
