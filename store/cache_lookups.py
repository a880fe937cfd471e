"""Query lookups in caches before the model."""

from typing import Final

import pyarrow as pa
from sqlalchemy import ColumnElement, Engine, and_, func, select, tuple_

from store.connections import reading
from store.queries import Window, fetched, sample_schema
from store.schema import LOOKUPS, REQUESTS
from telemetry.cache_lookups import CacheLookup
from telemetry.requests import Source

COLUMNS: Final = (
    *("at_unix_ns", "trace_id", "span_id", "parent_span_id", "service", "region"),
    *("result", "cache", "kind", "duration_s", "lookup_s", "similarity"),
    *("tenant", "route", "model"),
)

EARLIER_NS: Final = 60 * 10**9
"""A call begins before the lookup inside it. Calls are searched this far before a window."""

Call = tuple[str, str]
"""The trace id and the span id of a client's call."""


def lookup_count(engine: Engine, window: Window) -> int:
    """Return the number of reports of lookups in a window."""
    with reading(engine) as connection:
        number: int | None = connection.scalar(
            select(func.count()).select_from(LOOKUPS).where(_in(window))
        )
    return number or 0


def newest_lookups(engine: Engine, window: Window, limit: int) -> pa.Table:
    """Return the newest reports of lookups in a window, with `COLUMNS`, the newest first."""
    statement = (
        select(*(LOOKUPS.c[name] for name in COLUMNS))
        .where(_in(window))
        .order_by(LOOKUPS.c.at_unix_ns.desc())
        .limit(limit)
    )
    return fetched(engine, statement, sample_schema(CacheLookup, COLUMNS))


def models_of_calls(engine: Engine, window: Window) -> dict[Call, str]:
    """Return the model of each client's call inside which a span reports a lookup without a model.

    The span of an HTTP client has the header of the response, and its parent has the model.
    """
    calls = select(LOOKUPS.c.trace_id, LOOKUPS.c.parent_span_id).where(
        _in(window), LOOKUPS.c.model.is_(None), LOOKUPS.c.parent_span_id.is_not(None)
    )
    statement = select(REQUESTS.c.trace_id, REQUESTS.c.span_id, REQUESTS.c.model).where(
        REQUESTS.c.source == Source.CLIENT.value,
        REQUESTS.c.received_unix_ns >= max(window.from_unix_ns - EARLIER_NS, 0),
        REQUESTS.c.received_unix_ns < window.to_unix_ns,
        REQUESTS.c.model.is_not(None),
        tuple_(REQUESTS.c.trace_id, REQUESTS.c.span_id).in_(calls),
    )
    with reading(engine) as connection:
        return {(trace, span): model for trace, span, model in connection.execute(statement)}


def _in(window: Window) -> ColumnElement[bool]:
    at = LOOKUPS.c.at_unix_ns
    return and_(at >= window.from_unix_ns, at < window.to_unix_ns)
