"""Find the engines that only do prefills. Their rows do not count as requests of users.

An engine is a producer (only does prefills) if vLLM's `kv_role` states this. With NIXL, each engine
has the role `kv_both`. Such an engine counts as a producer if other engines loaded the KV caches of
its requests, and if it generated at most one token per request.
"""

from collections.abc import Set
from functools import lru_cache
from typing import Final

from sqlalchemy import ColumnElement, Connection, Engine, func, or_, select

from store.connections import reading
from store.joined.grouping import APART_NS, spellings
from store.joined.roles import Roles, stated_roles
from store.replicas.engine_starts import in_force
from store.schema import REQUESTS
from telemetry.joined_request import EngineRole
from telemetry.window import Window

EVIDENCE_NS: Final = 900 * 10**9
"""Roles are derived from the preceding 15 minutes."""
MAX_LOADED: Final = 500
_MINUTE_NS: Final = 60 * 10**9

_Key = tuple[str, int | None]


def known_roles(engine: Engine, at_unix_ns: int) -> Roles:
    """The roles of the engines with a KV connector, computed once per minute.

    A role is None if the engine does both prefills and decodes, or if its role is unknown.
    """
    return _known_roles(engine, -(-at_unix_ns // _MINUTE_NS) * _MINUTE_NS)


@lru_cache(maxsize=32)
def _known_roles(engine: Engine, at_unix_ns: int) -> Roles:
    roles = stated_roles(in_force(engine, min(at_unix_ns, 2**63 - 1)))
    undecided = {key for key, role in roles.items() if role is None}
    if not undecided:
        return roles
    with reading(engine) as connection:
        found = _prefill_engines(connection, at_unix_ns, undecided)
    return {**roles, **dict.fromkeys(found, EngineRole.PREFILL)}


def _prefill_engines(connection: Connection, at_unix_ns: int, undecided: Set[_Key]) -> set[_Key]:
    rows = REQUESTS.c
    recent = _received_in(Window(max(at_unix_ns - EVIDENCE_NS, 0), at_unix_ns))
    loaded = connection.execute(
        select(rows.trace_id, rows.request_id)
        .where(recent, rows.external_cached_tokens > 0)
        .order_by(rows.received_unix_ns.desc())
        .limit(MAX_LOADED)
    ).all()
    if not loaded:
        return set()
    ids = {each for _, request_id in loaded for each in spellings(request_id)}
    decodes = or_(rows.external_cached_tokens > 0, rows.output_tokens > 1)
    sent = select(rows.replica, rows.engine).distinct()
    sent = sent.where(
        _received_in(Window(max(at_unix_ns - EVIDENCE_NS - APART_NS, 0), at_unix_ns)),
        or_(
            rows.trace_id.in_(sorted({trace_id for trace_id, _ in loaded})),
            rows.request_id.in_(sorted(ids)),
        ),
        func.coalesce(rows.external_cached_tokens, 0) == 0,
        rows.output_tokens <= 1,
    )
    found = {(replica, number) for replica, number in connection.execute(sent)} & undecided
    if not found:
        return set()
    both = select(rows.replica, rows.engine).distinct().where(recent, decodes)
    both = both.where(rows.replica.in_(sorted({replica for replica, _ in found})))
    return found - {(replica, number) for replica, number in connection.execute(both)}


def _received_in(window: Window) -> ColumnElement[bool]:
    return REQUESTS.c.received_unix_ns.between(window.from_unix_ns, window.to_unix_ns - 1)
