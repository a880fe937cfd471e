"""Find the rows that belong to the same request of a user. Pure, O(n log n).

Such rows have the same trace id. Without a trace context, they have the same request id. A client
could choose the id of another tenant's request. Therefore model, adapter, tenant and number of
prompt tokens must be equal too. If a row lacks one of these values, the other rows must still agree
on it. A chain contains the rows (hops) of one request.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from typing import Final, NamedTuple

from store.joined.roles import Roles, roles_of, stated_role, transfers
from telemetry.joined_request import EngineRole, JoinedBy, Row

APART_NS: Final = 480 * 10**9
"""Maximum time between two hops. A prefill engine frees the request's KV cache after this time.
Source: vLLM, VLLM_NIXL_ABORT_REQUEST_TIMEOUT, default 480 s."""
MAX_HOPS: Final = 16
"""Maximum number of hops of a request. Further rows become separate requests, because a client may
use one trace id for all its requests."""

_PREFIX: Final = re.compile(r"^(?:chatcmpl|cmpl)-")
_ANSWERED: Final = ("stop", "length")


class ChainLink(NamedTuple):
    """One row of a chain, with the role of its engine."""

    row: Row
    role: EngineRole


class Chain(NamedTuple):
    """The rows of one request, in the order of their ends, and the id by which they were joined."""

    links: tuple[ChainLink, ...]
    joined_by: JoinedBy | None


def base_id(request_id: str | None) -> str | None:
    """A request id without vLLM's prefix, and without the suffix `-0` of a first prompt.

    `chatcmpl-x`, `cmpl-x-0` and `x` give `x`. `cmpl-x-1`, the second prompt of `x`, gives `x-1`.
    """
    if request_id is None:
        return None
    bare = _PREFIX.sub("", request_id)
    return bare.removesuffix("-0") if request_id.startswith("cmpl-") else bare


def spellings(request_id: str | None) -> Set[str]:
    """All ids that have the same base id as a request id. The result may contain other ids too. For
    None, it is empty."""
    base = base_id(request_id)
    return set() if base is None else {base, f"chatcmpl-{base}", f"cmpl-{base}", f"cmpl-{base}-0"}


def end_ns(row: Row) -> int:
    """Return when a row's request ended, by its engine's clock."""
    return int(row["received_unix_ns"]) + round(float(row["e2e_s"]) * 1e9)


def chains(rows: Iterable[Row], roles: Roles) -> list[Chain]:
    """Return a chain for each request with several hops. Also return a chain for each single row
    whose engine has reported its role."""
    found: list[Chain] = []
    alone: list[Row] = []
    for by_trace in _grouped(rows, lambda row: row["trace_id"]):
        for several in _same_request(by_trace, roles):
            if len(several) > 1:
                found.append(Chain(several, JoinedBy.TRACE))
            else:
                alone.append(several[0].row)
    for by_id in _grouped(alone, lambda row: base_id(row["request_id"])):
        for several in _in_time(by_id, roles):
            found.append(Chain(several, JoinedBy.REQUEST_ID if len(several) > 1 else None))
    return [
        each
        for each in found
        if each.joined_by is not None or stated_role(each.links[0].row, roles) is not None
    ]


def _same_request(rows: Sequence[Row], roles: Roles) -> Iterable[tuple[ChainLink, ...]]:
    """Divide the rows of a trace into requests, because a trace may contain several calls."""
    left: list[Row] = []
    for by_id in _grouped(rows, lambda row: base_id(row["request_id"])):
        for several in _separate_kinds(by_id):
            if _engines(several) > 1:
                yield from _cut_into_requests(several, roles)
            else:
                left += several
    for several in _separate_kinds(left):
        yield from _cut_into_requests(several, roles)


def _in_time(rows: Sequence[Row], roles: Roles) -> Iterable[tuple[ChainLink, ...]]:
    for several in _separate_kinds(rows):
        near: list[Row] = []
        for row in sorted(several, key=lambda row: row["received_unix_ns"]):
            if near and row["received_unix_ns"] - max(map(end_ns, near[-MAX_HOPS:])) > APART_NS:
                yield from _cut_into_requests(near, roles)
                near = []
            near.append(row)
        yield from _cut_into_requests(near, roles)


def _separate_kinds(rows: Sequence[Row]) -> Iterable[list[Row]]:
    parts = [list(rows)] if rows else []
    for name in ("model", "tenant", "prompt_tokens"):
        parts = [part for several in parts for part in _by_label(several, name)]
    return [part for several in parts for part in _grouped(several, lambda row: row["lora"] or "")]


def _by_label(rows: list[Row], name: str) -> Iterable[list[Row]]:
    if len({row[name] for row in rows} - {None}) <= 1:
        return [rows]
    found: defaultdict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[name]].append(row)
    return found.values()


def _cut_into_requests(rows: Sequence[Row], roles: Roles) -> Iterable[tuple[ChainLink, ...]]:
    """Divide rows into requests. A decode hop that answered ends a request."""
    if len(rows) > 1 and (_engines(rows) < 2 or not any(transfers(row, roles) for row in rows)):
        yield from ((ChainLink(row, each),) for row in rows for each in roles_of([row], roles))
        return
    ordered = sorted(rows, key=lambda row: (end_ns(row), row["span_id"]))
    links = [*map(ChainLink, ordered, roles_of(ordered, roles))]
    calls = _calls(links)
    if len(calls) > 1:
        for call in calls:
            yield from _cut_into_requests([each.row for each in call], roles)
        return
    answers = sum(_answers(each) for each in links)
    waiting: list[ChainLink] = []
    for link in links:
        if not _answers(link) or answers == 1:
            waiting.append(link)
            continue
        stale = sum(end_ns(each.row) + APART_NS < link.row["received_unix_ns"] for each in waiting)
        yield from ((each,) for each in waiting[:stale])
        waiting = waiting[stale:]
        used = _used(waiting)
        yield from _bounded([*waiting[:used], link])
        waiting = waiting[used:]
    if answers == 1:
        attempts, after = _at_the_answer(waiting)
        yield from _bounded(sorted(attempts, key=_answers))
        if after:
            yield from _cut_into_requests([each.row for each in after], roles)
    elif len({each.role for each in waiting}) > 1:
        waiting.sort(key=lambda each: each.role is EngineRole.DECODE)
        yield from _bounded(waiting)
    else:
        yield from ((each,) for each in waiting)


def _calls(links: Sequence[ChainLink]) -> list[list[ChainLink]]:
    """Divide hops, in the order of their ends, into calls. A new call begins where a client has
    disconnected and sent its request again.

    The hops are divided after an aborted hop if four conditions hold: no hop was in progress, the
    call already has a prefill, the next hop is a prefill, and its request id differs from the ids
    of the earlier hops. If the next hop is a decode, the router still serves the same call. If a
    hop failed in another way, the router tries again within the same call.
    """
    next_began: list[ChainLink | None] = [None]
    for link in reversed(links):
        before = next_began[-1]
        first = before is None or link.row["received_unix_ns"] < before.row["received_unix_ns"]
        next_began.append(link if first else before)
    next_began.reverse()
    last_place = {base_id(each.row["request_id"]): place for place, each in enumerate(links)}
    last_place.pop(None, None)
    found: list[list[ChainLink]] = [[]]
    until, has_prefill = -1, False
    for place, link in enumerate(links):
        found[-1].append(link)
        until = max(until, last_place.get(base_id(link.row["request_id"]), place))
        has_prefill = has_prefill or link.role is EngineRole.PREFILL
        following = next_began[place + 1]
        if (
            link.row["outcome"] == "abort"
            and has_prefill
            and until == place
            and following is not None
            and following.role is EngineRole.PREFILL
            and following.row["received_unix_ns"] >= end_ns(link.row)
        ):
            found.append([])
            has_prefill = False
    return found


def _at_the_answer(links: Sequence[ChainLink]) -> tuple[list[ChainLink], list[ChainLink]]:
    """Divide the hops around the only decode hop that answered.

    Returns: the attempts of the answered request, and the hops of later requests. These hops began
    after the answer ended. If none of the attempts is a successful prefill, the clocks of the
    engines differ, and all hops count as attempts.
    """
    until_ns = next(end_ns(each.row) for each in links if _answers(each))
    attempts = [each for each in links if each.row["received_unix_ns"] <= until_ns]
    if not any(
        each.role is EngineRole.PREFILL and each.row["outcome"] in _ANSWERED for each in attempts
    ):
        return list(links), []
    return attempts, [each for each in links if each.row["received_unix_ns"] > until_ns]


def _used(waiting: Sequence[ChainLink]) -> int:
    """Return how many of the waiting hops belong to the request of the next decode hop that
    answered. These are the first successful prefill, and the failed attempts before and directly
    after this prefill."""
    done = False
    for place, each in enumerate(waiting):
        answered = each.row["outcome"] in _ANSWERED
        if done and answered:
            return place
        done = done or answered
    return len(waiting)


def _answers(link: ChainLink) -> bool:
    return link.role is EngineRole.DECODE and link.row["outcome"] in _ANSWERED


def _bounded(links: Sequence[ChainLink]) -> Iterable[tuple[ChainLink, ...]]:
    """Yield the last `MAX_HOPS` hops as a request, and each earlier hop as a separate request."""
    yield tuple(links[-MAX_HOPS:])
    yield from ((each,) for each in links[:-MAX_HOPS])


def _engines(rows: Sequence[Row]) -> int:
    return len({(row["replica"], row["engine"]) for row in rows})


def _grouped(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> Iterable[list[Row]]:
    """Group rows by a key. Each row without the key is its own group."""
    found: defaultdict[Hashable, list[Row]] = defaultdict(list)
    alone: list[list[Row]] = []
    for row in rows:
        if (value := key(row)) is None:
            alone.append([row])
        else:
            found[value].append(row)
    return [*found.values(), *alone]
