"""Which row of a request counts, if several sources reported it.

The instrumentation reports most, an engine's own spans less, a client only what it saw from
outside. Each row is kept, in any order of arrival; a query skips a row if a better source reported
the same request. A request is identified by its id, which server and client share, or by its
trace if a row has no id.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, FromClause, Select, and_, func, or_, select

from store.schema import REQUESTS
from telemetry.requests import Source

BEST: Final = (Source.INSTRUMENTATION, Source.SIMULATOR)
SERVERS: Final = (*BEST, Source.NATIVE)
SECOND: Final = (Source.NATIVE, Source.CLIENT)

NEAR_NS: Final = 3600 * 10**9
"""How far apart two clocks may put one request: ids are looked for this far beyond a window."""


def counts(from_unix_ns: int, to_unix_ns: int) -> ColumnElement[bool]:
    """Whether a row of this window is the one of its request.

    A window without other sources pays for the comparison alone: the databases look for
    better rows only once there is one to hold against them.
    """
    source = REQUESTS.c.source
    return or_(
        source.not_in(_names(SECOND)),
        and_(source == Source.NATIVE.value, _not_told_by(BEST, from_unix_ns, to_unix_ns)),
        and_(source == Source.CLIENT.value, _not_told_by(SERVERS, from_unix_ns, to_unix_ns)),
    )


def _not_told_by(
    sources: Sequence[Source], from_unix_ns: int, to_unix_ns: int
) -> ColumnElement[bool]:
    request_id, trace_id = REQUESTS.c.request_id, REQUESTS.c.trace_id
    known = _known(request_id, sources, from_unix_ns, to_unix_ns)
    prompts = _prompts(sources, from_unix_ns, to_unix_ns)
    return or_(
        and_(request_id.is_not(None), request_id.not_in(known), request_id.not_in(prompts)),
        and_(
            request_id.is_(None),
            trace_id.not_in(_known(trace_id, sources, from_unix_ns, to_unix_ns)),
        ),
    )


def _prompts(
    sources: Sequence[Source], from_unix_ns: int, to_unix_ns: int
) -> Select[tuple[str | None]]:
    """The clients' ids of completions whose prompts vLLM numbers: `cmpl-x` of `cmpl-x-0`."""
    numbered = _known(REQUESTS.c.request_id, sources, from_unix_ns, to_unix_ns).subquery()
    name = numbered.c.request_id
    return select(func.substr(name, 1, func.length(name) - 2)).where(name.like("cmpl-%-_"))


def _known(
    column: Column[Any],
    sources: Sequence[Source],
    from_unix_ns: int,
    to_unix_ns: int,
) -> Select[tuple[str | None]]:
    better = _better()
    return select(better.c[column.key]).where(
        better.c.source.in_(_names(sources)),
        better.c.received_unix_ns >= max(from_unix_ns - NEAR_NS, 0),
        better.c.received_unix_ns < min(to_unix_ns + NEAR_NS, 2**63 - 1),
        # With one NULL in the list, SQL's NOT IN would select no row.
        better.c[column.key].is_not(None),
    )


@cache
def _better() -> FromClause:
    """Once: its sixty columns take longer to make than most questions to answer."""
    return REQUESTS.alias("better")


def _names(sources: Sequence[Source]) -> list[str]:
    return [source.value for source in sources]


def same_request(client_id: str, server_id: str) -> bool:
    """Whether a client's id and a server's are one request's; as above, for what was read."""
    return server_id == client_id or (
        client_id.startswith("cmpl-") and server_id.rpartition("-")[0] == client_id
    )
