"""Determine the role of an engine in a fleet that separates prefill and decode. Pure.

vLLM's `kv_role` is the role: producers do prefills, and consumers do decodes. With NIXL
(`kv_both`), the proxy chooses the role for each request. An engine then counts as the prefill
engine of a request if it returned at most one token and loaded no tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from telemetry import starts
from telemetry.joined_request import EngineRole, Row
from telemetry.starts import EngineStart

ARGUMENT: Final = "kv_transfer.kv_role"
_STATED: Final = {"kv_producer": EngineRole.PREFILL, "kv_consumer": EngineRole.DECODE}

Roles = Mapping[tuple[str, int | None], EngineRole | None]
"""Maps each engine with a KV connector to the role that it reported. The role is None for
`kv_both`. The key's engine number is None for rows without an engine number."""


def stated_roles(found: Iterable[EngineStart]) -> dict[tuple[str, int | None], EngineRole | None]:
    """The role of each engine whose vLLM arguments contain a role (`kv_role`)."""
    roles: dict[tuple[str, int | None], EngineRole | None] = {}
    for start in found:
        kv_role = starts.read(start.arguments).get(ARGUMENT)
        if kv_role is not None:
            role = _STATED.get(str(kv_role))
            roles[start.replica, start.engine] = role
            roles.setdefault((start.replica, None), role)
    return roles


def stated_role(row: Row, roles: Roles) -> EngineRole | None:
    """The role that a row's engine reported, or None."""
    return roles.get((row["replica"], row["engine"]))


def transfers(row: Row, roles: Roles) -> bool:
    """Whether the engine of a row has a KV connector."""
    return bool(row["external_cached_tokens"]) or (row["replica"], row["engine"]) in roles


def roles_of(rows: Sequence[Row], roles: Roles) -> list[EngineRole]:
    """Return the role of each row of a group, in the order in which the rows ended."""
    found = [stated_role(row, roles) or _derive_role(row) for row in rows]
    engines = {(row["replica"], row["engine"]) for row in rows}
    one_request = len(engines) > 1 and len({row["request_id"] for row in rows}) == 1
    if EngineRole.DECODE not in found and one_request and stated_role(rows[-1], roles) is None:
        # No row looks like a decode: the client asked for one token, and the transfer failed or was
        # not reported. If the request ids are equal, the last row is the decode. Different ids
        # could be two attempts of a client.
        found[-1] = EngineRole.DECODE
    return found


def _derive_role(row: Row) -> EngineRole:
    if row["external_cached_tokens"] or (row["output_tokens"] or 0) > 1:
        return EngineRole.DECODE
    return EngineRole.PREFILL
