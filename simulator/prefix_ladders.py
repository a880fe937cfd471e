"""The prefix ladders of simulated requests. Pure.

A ladder has digests of a prompt's first n blocks, for increasing n. Each digest is called a rung.
Two requests with the same prefix have the same rungs for this prefix.
"""

from base64 import urlsafe_b64encode
from bisect import bisect_right
from functools import lru_cache
from hashlib import shake_128
from typing import Final

from tailspan_vllm.request.prefix_ladder import (
    DIGEST_BYTES,
    POSITIONS,
    POSITIONS_LIMIT,
    RUNG_CHARS,
)

from simulator.workload import SimulatedRequest

_CONVERSATIONS: Final = 4096
"""Maximum shared prefixes whose digests are cached."""


def ladder(request: SimulatedRequest, block_tokens: int, own: str) -> str | None:
    """A request's ladder, or None if its prompt is shorter than a block.

    Args:
        own: a name of the whole prompt. Two prompts have the same name only if they are equal.
    """
    rungs = bisect_right(POSITIONS, request.prompt_tokens // block_tokens)
    if not rungs:
        return None
    shared, name = 0, ""
    if request.prefix is not None:
        shared = bisect_right(POSITIONS, request.prefix.tokens // block_tokens)
        # As in vLLM, different adapters share no KV blocks.
        name = f"{request.lora}/{request.prefix.name}"
    ends, begins = RUNG_CHARS * (1 + rungs), RUNG_CHARS * (1 + min(shared, rungs))
    return f"{block_tokens}:{_EMPTY}{_rungs(name)[RUNG_CHARS:begins]}{_digests(own)[begins:ends]}"


def _digests(name: str) -> str:
    digests = shake_128(name.encode()).digest(DIGEST_BYTES * (1 + POSITIONS_LIMIT))
    return urlsafe_b64encode(digests).decode()


_rungs = lru_cache(_CONVERSATIONS)(_digests)
_EMPTY: Final = _digests("")[:RUNG_CHARS]
"""The beginning of every ladder. Ladders with different beginnings cannot be compared."""
