"""Compute the shared prefixes of the recorded prompts, for what-if questions that change what the
KV cache contains.

The prefix ladder of a request contains hashes of prefixes of its prompt at increasing lengths
(rungs). Equal rungs show which requests begin with the same tokens, so the replay can compute the
cache hits again.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from analysis.recorded_traffic import Recorded
from replay.arrivals import BoolArray, IntArray, Prefixes
from replay.edits import Edits
from telemetry.percentages import percent
from telemetry.prefix_ladders import POSITIONS, Ladders, read_ladders

ARGUMENTS: Final = frozenset({"num_gpu_blocks"})
"""Engine arguments whose effect depends on shared prefixes. The argument for prefix caching is not
listed. Without prefix caching, vLLM hashes no blocks, so there are no ladders."""

MIN_KNOWN: Final = 0.95
"""Minimum share of requests with a ladder. Only requests whose prompt fills at least one KV block
are counted."""

COMMON_FROM: Final = 10
"""A prefix with at least this many different continuations is common to many users."""

_BLOCKS: Final = np.array(POSITIONS)


class PrefixedTraffic(NamedTuple):
    """Recorded traffic for a question, and the assumptions to report."""

    recorded: Recorded
    assumptions: Sequence[str]


def with_prefixes(recorded: Recorded, alternatives: Sequence[Edits]) -> PrefixedTraffic:
    """Return the traffic together with the prefixes that its prompts share, if the question needs
    them.

    Returns:
        The unchanged traffic in three cases: no tokens were cached, no edit changes the contents of
        the caches, or the ladders cannot be used. In all other cases, the traffic with `prefixes`.
        Its `cached_tokens` then contains only the hits that the replay cannot compute. These hits
        are from outside the engine, or from before the recording.
    """
    cached_tokens = np.nan_to_num(recorded.column("cached_tokens")).astype(np.int64)
    if not any(map(_edits_affect_cache, alternatives)) or not cached_tokens.any():
        return PrefixedTraffic(recorded, ())
    ladders = read_ladders(recorded.requests["prefix_ladder"].to_pylist())
    if lacking := _why_unusable(recorded, ladders, any(each.pools for each in alternatives)):
        return PrefixedTraffic(
            recorded, [f"cached tokens of each request stay as recorded: {lacking}"]
        )
    external = np.nan_to_num(recorded.column("external_cached_tokens")).astype(np.int64)
    prefixes, before = prefixes_of(ladders, np.maximum(cached_tokens - external, 0))
    kept = np.where(before, cached_tokens, external)
    engines = [
        replace(
            each,
            arrivals=replace(
                each.arrivals,
                prefixes=prefixes.select(each.rows),
                cached_tokens=np.minimum(kept[each.rows], each.arrivals.prompt_tokens - 1),
            ),
        )
        for each in recorded.engines
    ]
    assumptions = ["the prefixes that prompts share are taken from their prefix ladders"]
    if share := kept.sum() / cached_tokens.sum():
        assumptions.append(f"{percent(share, 0)} of the cached tokens stay as recorded")
    return PrefixedTraffic(replace(recorded, engines=engines), assumptions)


def repeated_tokens(recorded: Recorded) -> IntArray:
    """Return the tokens of the prefix that each prompt shares with an earlier prompt to the engine:
    (n,).

    The number is rounded down to a rung. It is 0 without a ladder.
    """
    found = np.zeros(recorded.requests.num_rows, dtype=np.int64)
    texts = recorded.requests["prefix_ladder"]
    for engine in recorded.engines:
        ladders = read_ladders(texts.take(engine.rows).to_pylist())
        nodes = _shared_nodes(ladders)
        repeats = nodes.first_row[nodes.key] < nodes.row
        rows, levels = nodes.row[repeats], nodes.level[repeats]
        np.maximum.at(found, engine.rows[rows], _BLOCKS[levels] * ladders.block_tokens[rows])
    return found


def _edits_affect_cache(edits: Edits) -> bool:
    arguments = {name.replace("-", "_") for name in edits.arguments or {}}
    return edits.pools or bool(edits.rates) or bool(arguments & ARGUMENTS)


def _why_unusable(recorded: Recorded, ladders: Ladders, pools: bool) -> str | None:
    """Return why the ladders cannot be used, or None if they can be used. `pools` is True if the
    edits send requests to engines that did not serve them in the recording."""
    known = ladders.block_tokens > 0
    if not known.any():
        return "no prefix ladders"
    whole = recorded.column("prompt_tokens") >= ladders.block_tokens[known].min()
    if known[whole].sum() < MIN_KNOWN * whole.sum():
        return f"{percent(1 - known[whole].mean(), 0)} of the requests have no prefix ladder"
    if not pools:
        return None
    # If an engine restarts with another key, its rungs change. So only its latest ladder is
    # compared.
    latest = [each.rows[known[each.rows]][-1:] for each in recorded.engines]
    if len({int(ladders.rungs[ladders.offsets[row]]) for row in np.concatenate(latest)}) > 1:
        return (
            "the prefix ladders of the replicas are not comparable;"
            " set TAILSPAN_PREFIX_KEY to the same secret on all of them"
        )
    return None


def prefixes_of(
    ladders: Ladders, found_tokens: IntArray, positions: IntArray = _BLOCKS
) -> tuple[Prefixes, BoolArray]:
    """The prefixes that prompts share.

    Also return (n,) which cache hits are at least one rung longer than the prefix that the request
    shares with earlier requests.

    Two prompts begin to differ somewhere between their last equal rung and the next rung. If a
    cache hit ends between these two rungs, the shared prefix is assumed to end at the shortest such
    hit. Otherwise, it is assumed to end at the last equal rung.

    Args:
        found_tokens: (n,) prompt tokens that were found in the engine's own cache.
        positions: number of KV blocks from the start of a prompt to each rung, ascending.
    """
    nodes = _shared_nodes(ladders)
    found_blocks = found_tokens // np.maximum(ladders.block_tokens, 1)
    found_level = np.searchsorted(positions, found_blocks, side="right") - 1
    ends = _moved_ends(nodes, found_blocks, found_level, positions)
    seen_level = np.full(len(found_tokens), -1)
    seen = nodes.first_row[nodes.key] < nodes.row
    np.maximum.at(seen_level, nodes.row[seen], nodes.level[seen])
    # If exactly the same requests have two consecutive rungs, only the second rung is kept.
    last = np.r_[nodes.row[1:] != nodes.row[:-1], True]
    follows = np.r_[nodes.requests[nodes.key[1:]], 0]
    kept = last | (follows != nodes.requests[nodes.key])
    lengths = np.bincount(nodes.row[kept], minlength=len(found_tokens))
    prefixes = Prefixes(
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        keys=nodes.key[kept],
        end_tokens=(ends[nodes.key] * ladders.block_tokens[nodes.row])[kept],
        common=_common(nodes)[kept],
    )
    return prefixes, found_level > seen_level


class _Nodes(NamedTuple):
    """The nodes. A node is a prefix that at least two requests have. m is the number of pairs of a
    request and one of its nodes.

    Attributes:
        row: (m,) the row of each pair's request, ascending.
        level: (m,) the index in `POSITIONS` of the rung at which the node ends, ascending for each
            request.
        key: (m,) the number of the pair's node.
        first_row: (keys,) the row of the first request that has each node.
        requests: (keys,) the number of requests that have each node.
        continuations: (keys,) the number of different rungs that follow each node.
    """

    row: IntArray
    level: IntArray
    key: IntArray
    first_row: IntArray
    requests: IntArray
    continuations: IntArray


def _shared_nodes(ladders: Ladders) -> _Nodes:
    """Find the nodes from the shortest to the longest. A request is followed from rung to rung
    until no other request has the same rungs."""
    lengths = np.diff(ladders.offsets)
    rows = np.flatnonzero(lengths)
    # Requests with different block sizes share no blocks.
    parents = ladders.block_tokens[rows]
    known = int(parents.max(initial=0)) + 1
    found: list[tuple[IntArray, IntArray, IntArray]] = []
    firsts, requests = [np.zeros(known, np.int64)], [np.zeros(known, np.int64)]
    continuations: list[IntArray] = []
    for level in range(int(lengths.max(initial=0))):
        going = lengths[rows] > level
        rows, parents = rows[going], parents[going]
        rungs = ladders.rungs[ladders.offsets[rows] + level].astype(np.int64)
        pairs, first, key, count = np.unique(
            (parents << 32) | rungs, return_index=True, return_inverse=True, return_counts=True
        )
        continuations.append(np.bincount(pairs >> 32, minlength=known))
        firsts.append(rows[first])
        requests.append(count)
        shared = count[key] > 1
        rows, parents = rows[shared], known + key.reshape(-1)[shared]
        known += len(pairs)
        if level:  # the first rung belongs to the empty prompt, which is not a node
            found.append((rows, np.full(len(rows), level - 1), parents))
    row, level_of, key = (
        np.concatenate([each[place] for each in found]) if found else np.zeros(0, dtype=np.int64)
        for place in range(3)
    )
    order = np.lexsort((level_of, row))
    summed = np.zeros(known, dtype=np.int64)
    for each in continuations:
        summed[: len(each)] += each
    return _Nodes(
        row[order],
        level_of[order],
        key[order],
        np.concatenate(firsts),
        np.concatenate(requests),
        summed,
    )


def _moved_ends(
    nodes: _Nodes, found_blocks: IntArray, found_level: IntArray, positions: IntArray
) -> IntArray:
    """Return where each node ends, in KV blocks from the start of the prompt.

    If a cache hit ends between the node's rung and the next rung, the node ends at the shortest
    such hit. Otherwise, it ends at its rung.
    """
    ends = np.zeros(len(nodes.requests), dtype=np.int64)
    ends[nodes.key] = positions[nodes.level]
    stopped = nodes.level == found_level[nodes.row]
    shortest = np.full(len(ends), np.iinfo(np.int64).max)
    np.minimum.at(shortest, nodes.key[stopped], found_blocks[nodes.row[stopped]])
    known = shortest < np.iinfo(np.int64).max
    ends[known] = shortest[known]
    return ends


def _common(nodes: _Nodes) -> BoolArray:
    """Return which prefixes are common to many users: (m,). A prefix is common if many different
    prompts continue it. It is also common if it begins a longer common prefix of the same
    request."""
    many = nodes.continuations[nodes.key] >= COMMON_FROM
    last = np.full(int(nodes.row.max(initial=-1)) + 1, -1)
    np.maximum.at(last, nodes.row[many], nodes.level[many])
    found: BoolArray = nodes.level <= last[nodes.row]
    return found
