"""Finds the requests that an id means: one that was typed, pasted, or comes from a link.

    TRACE/SPAN        that row, as links have it
    32 hex digits     all requests of that trace
    anything else     the server's id; or the client's, before which vLLM puts `chatcmpl-`

A row of which a better source exists is left out, unless it is named by its span.

No index is in the order of ids, because each new request would pay for it. Most lookups are for
recent requests, so the newest range is searched first, then longer ones.
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
from telemetry.requests import Source

COLUMNS: Final = (
    *("received_unix_ns", "trace_id", "span_id", "request_id", "source"),
    *("model", "tenant", "replica", "engine", "outcome", "e2e_s", "ttft_s"),
)
"""The columns of each, for a reader to choose by."""

MOST: Final = 50
LONGEST: Final = 300
"""Characters of an id that are looked for; no server makes longer ones."""

FIRST_NS: Final = 3600 * 10**9
GROWTH: Final = 4
"""A day is the third stretch, a week the fifth."""
KIN_NS: Final = 3600 * 10**9
"""How long before the first that is found requests of its name are looked for: an agent's."""

_RANK: Final = {Source.INSTRUMENTATION: 0, Source.SIMULATOR: 0, Source.NATIVE: 1, Source.CLIENT: 2}
_PAIR: Final = re.compile(r"([0-9a-f]{1,32})/([0-9a-f]{1,16})")
_TRACE: Final = re.compile(r"[0-9a-f]{32}")


def find_requests(engine: Engine, words: str) -> pa.Table:
    """The requests meant, earliest first, at most `MOST`; none where nothing is called so.

    If nothing has the name, every row is read.

    Args:
        engine: from `open_database`.
        words: as above; blanks around it do not count.
    """
    words = words.strip()
    rows: list[dict[str, Any]] = []
    if pair := _PAIR.fullmatch(words.lower()):
        rows = _rows(engine, REQUESTS.c.trace_id == pair[1], REQUESTS.c.span_id == pair[2])
    elif words and len(words) <= LONGEST:
        if _TRACE.fullmatch(words.lower()):
            rows = _best(_rows(engine, REQUESTS.c.trace_id == words.lower()))
        rows = rows or _best(_rows(engine, REQUESTS.c.request_id.in_(_spellings(words))))
    return pa.Table.from_pylist(rows, schema=request_schema(COLUMNS))


def oldest_request_unix_ns(engine: Engine) -> int | None:
    """When the earliest request that is still there was received; None where there is none."""
    with reading(engine) as connection:
        oldest: int | None = connection.scalar(select(func.min(REQUESTS.c.received_unix_ns)))
        return oldest


def _spellings(words: str) -> Sequence[str]:
    """The ids that vLLM may report for a client's X-Request-Id: with a prefix, a number or both."""
    return (words, f"chatcmpl-{words}", f"cmpl-{words}", f"cmpl-{words}-0", f"{words}-0")


def _rows(engine: Engine, *conditions: ColumnElement[bool]) -> list[dict[str, Any]]:
    instant = REQUESTS.c.received_unix_ns
    # Two questions in one: SQLite reads the whole index for both at once, and its ends for each.
    ends = [select(which(instant)).scalar_subquery() for which in (func.min, func.max)]
    with reading(engine) as connection:
        oldest, newest = connection.execute(select(*ends)).one()
        if oldest is None:
            return []
        until, length = newest + 1, FIRST_NS
        while until > oldest:
            if found := _within(connection, conditions, until - length, until):
                kin_from = found[0]["received_unix_ns"] - KIN_NS
                kin = _within(connection, conditions, kin_from, until - length)
                return [*kin, *found][:MOST]
            until, length = until - length, length * GROWTH
    return []


def _within(
    connection: Connection,
    conditions: Sequence[ColumnElement[bool]],
    from_unix_ns: int,
    to_unix_ns: int,
) -> list[dict[str, Any]]:
    instant = REQUESTS.c.received_unix_ns
    # For a trace the key holds all that the inner query needs, so that no row is read.
    when = select(instant).where(instant >= from_unix_ns, instant < to_unix_ns, *conditions)
    statement = (
        select(*(REQUESTS.c[name] for name in COLUMNS))
        .where(instant.in_(when), *conditions)
        .order_by(instant)
        .limit(MOST)
    )
    return [dict(row._mapping) for row in connection.execute(statement)]


def _best(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if not any(_tells_better(other, row) for other in rows)]


def _tells_better(other: dict[str, Any], row: dict[str, Any]) -> bool:
    if _rank(other) >= _rank(row):
        return False
    if row["request_id"] is None or other["request_id"] is None:
        return bool(other["trace_id"] == row["trace_id"])
    return same_request(row["request_id"], other["request_id"])


def _rank(row: dict[str, Any]) -> int:
    return _RANK.get(row["source"], 0)
