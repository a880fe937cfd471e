"""Select the best row of a request that several sources reported: plugin, native spans, clients.

Every row is stored. Rows belong to the same request if their request ids are equal. If a row has no
request id, the trace ids are compared. Queries also skip a client's call that a cache answered.
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Select, and_, func, or_, select, tuple_

from store.access.restricted import compared, with_all_rows
from store.schema import LOOKUPS, REQUESTS
from telemetry.cache_lookups import CacheKind, CacheResult
from telemetry.probes import PROBE_TENANT
from telemetry.requests import Source

BEST: Final = (Source.INSTRUMENTATION, Source.SIMULATOR)
SERVERS: Final = (*BEST, Source.NATIVE)
SECOND: Final = (Source.NATIVE, Source.CLIENT)

_IDS: Final = frozenset({"trace_id", "span_id", "request_id"})
_ALL: Final[Mapping[str, str | None]] = MappingProxyType({})

NEAR_NS: Final = 3600 * 10**9
"""Maximum difference between the clocks of two sources."""


def counts(
    from_unix_ns: int, to_unix_ns: int, equals: Mapping[str, str | None] = _ALL
) -> ColumnElement[bool]:
    """The SQL condition that selects the best row of each request in a window.

    The prober's requests are excluded, unless the query selects the prober's tenant or a single
    request.
    """
    return _best_rows(from_unix_ns, to_unix_ns, asks_for_probes(equals))


@lru_cache(maxsize=32)
def _best_rows(from_unix_ns: int, to_unix_ns: int, with_probes: bool) -> ColumnElement[bool]:
    """Return the condition that selects the best rows. It is cached, because a page reads the same
    few windows many times."""
    source = REQUESTS.c.source
    best = or_(
        source.not_in(_names(SECOND)),
        and_(source == Source.NATIVE.value, _not_reported_by(BEST, from_unix_ns, to_unix_ns)),
        and_(
            source == Source.CLIENT.value,
            _not_reported_by(SERVERS, from_unix_ns, to_unix_ns),
            not_from_a_cache(from_unix_ns, to_unix_ns),
        ),
    )
    return best if with_probes else and_(best, not_of_the_prober(REQUESTS.c.tenant))


def asks_for_probes(equals: Mapping[str, str | None]) -> bool:
    """Whether a query selects the prober's tenant, or a single request by an id."""
    return equals.get("tenant") == PROBE_TENANT or not _IDS.isdisjoint(equals)


def not_of_the_prober(tenant: ColumnElement[str | None]) -> ColumnElement[bool]:
    """The SQL condition that excludes the prober's requests."""
    return or_(tenant.is_(None), tenant != PROBE_TENANT)


def not_from_a_cache(from_unix_ns: int, to_unix_ns: int) -> ColumnElement[bool]:
    """The SQL condition that excludes calls of clients if a cache answered them.

    Hits in caches of embeddings are ignored, because they do not answer a call. Hits that the
    reader may not see are included, because a lookup often has no tenant or model of its own.
    """
    lookups = with_all_rows(LOOKUPS).c
    hits = select(lookups.trace_id, lookups.parent_span_id).where(
        lookups.result == CacheResult.HIT.value,
        or_(lookups.kind.is_(None), lookups.kind != CacheKind.EMBEDDING.value),
        # With a NULL in the list, NOT IN would select no row.
        lookups.parent_span_id.is_not(None),
        lookups.at_unix_ns >= max(from_unix_ns - NEAR_NS, 0),
        lookups.at_unix_ns < min(to_unix_ns + NEAR_NS, 2**63 - 1),
    )
    return tuple_(compared(REQUESTS.c.trace_id), compared(REQUESTS.c.span_id)).not_in(hits)


def _not_reported_by(
    sources: Sequence[Source], from_unix_ns: int, to_unix_ns: int
) -> ColumnElement[bool]:
    request_id, trace_id = compared(REQUESTS.c.request_id), compared(REQUESTS.c.trace_id)
    known = _ids_from_better_sources(request_id, sources, from_unix_ns, to_unix_ns)
    prompts = _prompts(sources, from_unix_ns, to_unix_ns)
    return or_(
        and_(request_id.is_not(None), request_id.not_in(known), request_id.not_in(prompts)),
        and_(
            request_id.is_(None),
            trace_id.not_in(_ids_from_better_sources(trace_id, sources, from_unix_ns, to_unix_ns)),
        ),
    )


def _prompts(
    sources: Sequence[Source], from_unix_ns: int, to_unix_ns: int
) -> Select[tuple[str | None]]:
    """Select the request ids of completions without the index of the prompt. `cmpl-x-0` becomes
    `cmpl-x`."""
    numbered = _ids_from_better_sources(
        REQUESTS.c.request_id, sources, from_unix_ns, to_unix_ns
    ).subquery()
    name = numbered.c.request_id
    return select(func.substr(name, 1, func.length(name) - 2)).where(name.like("cmpl-%-_"))


def _ids_from_better_sources(
    column: ColumnElement[Any],
    sources: Sequence[Source],
    from_unix_ns: int,
    to_unix_ns: int,
) -> Select[tuple[str | None]]:
    better = _better()
    ids = compared(better.c[str(column.key)])
    return select(ids).where(
        better.c.source.in_(_names(sources)),
        better.c.received_unix_ns >= max(from_unix_ns - NEAR_NS, 0),
        better.c.received_unix_ns < min(to_unix_ns + NEAR_NS, 2**63 - 1),
        # With a NULL in the list, NOT IN would select no row.
        ids.is_not(None),
    )


@cache
def _better() -> FromClause:
    """Return the alias. It is cached, because creating it is slower than most queries."""
    return REQUESTS.alias("better")


def _names(sources: Sequence[Source]) -> list[str]:
    return [source.value for source in sources]


def same_request(client_id: str, server_id: str) -> bool:
    """Whether a client's id and a server's id belong to the same request."""
    return server_id == client_id or (
        client_id.startswith("cmpl-") and server_id.rpartition("-")[0] == client_id
    )
