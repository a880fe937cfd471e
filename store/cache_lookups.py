"""Query lookups in caches of answers or embeddings in front of the model."""

from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Engine, and_, func, select, tuple_

from store.connections import reading
from store.dialects.bulk import IN_BULK
from store.queries import BATCH_ROWS
from store.schema import LOOKUPS, REQUESTS
from telemetry.requests import Source
from telemetry.window import Window


class CacheLookupReport(NamedTuple):
    """One row of the table of lookups."""

    at_unix_ns: int
    trace_id: str
    span_id: str
    parent_span_id: str | None
    service: str | None
    region: str | None
    result: str
    cache: str
    kind: str | None
    duration_s: float
    lookup_s: float | None
    similarity: float | None
    tenant: str | None
    route: str | None
    model: str | None


EARLIER_NS: Final = 60 * 10**9
"""A client's call begins up to this many nanoseconds before its lookup in the cache."""

Call = tuple[str, str]
"""Trace id and span id."""


def lookup_count(engine: Engine, window: Window) -> int:
    """The number of lookups in a window."""
    with reading(engine) as connection:
        number: int | None = connection.scalar(
            select(func.count()).select_from(LOOKUPS).where(_in(window))
        )
    return number or 0


def newest_lookups(engine: Engine, window: Window, limit: int) -> list[CacheLookupReport]:
    """The newest lookups in a window, the newest first."""
    statement = (
        select(*(LOOKUPS.c[name] for name in CacheLookupReport._fields))
        .where(_in(window))
        .order_by(LOOKUPS.c.at_unix_ns.desc())
        .limit(limit)
    )
    found: list[CacheLookupReport] = []
    with reading(engine) as connection:
        # the driver's plain tuples are faster than SQLAlchemy's rows
        cursor = connection.execute(statement, execution_options={IN_BULK: True}).cursor
        while cursor is not None and (rows := cursor.fetchmany(BATCH_ROWS)):
            found += map(CacheLookupReport._make, rows)
    return found


def models_of_calls(engine: Engine, window: Window) -> dict[Call, str]:
    """The model of a client's call, for each lookup that does not name a model. The model is in the
    parent span of the lookup, not in the HTTP client's span."""
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
