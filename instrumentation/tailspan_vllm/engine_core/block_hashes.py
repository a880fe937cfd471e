"""Copies a few of vLLM's block hashes of each request, for its prefix ladder.

If prefix caching is enabled, vLLM hashes each whole block of a prompt, and of its answer, together
with all blocks before it. A hash also depends on the adapter, the images and the cache salt of the
request.

Source: vllm/v1/request.py, vllm/v1/core/kv_cache_utils.py, 0.12 to 0.33.
"""

import sys
from bisect import bisect_right
from typing import Any, Final, NamedTuple

from tailspan_vllm.request.prefix_ladder import BLOCK_TOKENS_LIMIT, HASH_BYTES, POSITIONS

_PLACES: Final = tuple(
    tuple(position - 1 for position in POSITIONS[:number]) for number in range(len(POSITIONS) + 1)
)
"""By the number of rungs: their places in vLLM's list of hashes."""


class BlockHashes(NamedTuple):
    """The hashes of one request.

    Attributes:
        block_tokens: tokens per block.
        hashes: `HASH_BYTES` of each hash, from that of the empty prompt on.
    """

    block_tokens: int
    hashes: bytes


class HashReader:
    """Reads the block hashes of an engine's requests.

    Args:
        scheduler: vLLM's, after it hashed a first prompt.

    Raises:
        LookupError: this vLLM lacks the attribute that the message names.
    """

    def __init__(self, scheduler: Any) -> None:
        size = getattr(scheduler, "hash_block_size", None)
        if size is None:  # earlier versions have one size for all blocks
            size = getattr(scheduler, "block_size", None)
        hashing = sys.modules.get("vllm.v1.core.kv_cache_utils")
        empty = getattr(hashing, "NONE_HASH", None)
        if not isinstance(size, int) or not 0 < size <= BLOCK_TOKENS_LIMIT:
            raise LookupError("Scheduler.block_size")
        if not isinstance(empty, bytes):
            raise LookupError("kv_cache_utils.NONE_HASH")
        self._block_tokens = size
        self._empty = empty[:HASH_BYTES]

    def of(self, request: Any) -> BlockHashes | None:
        """Return the hashes of a prompt and its answer so far; None if some are missing."""
        hashes: list[bytes] = request.block_hashes
        number = len(hashes)
        if number != request.num_tokens // self._block_tokens:
            return None
        places = _PLACES[bisect_right(POSITIONS, number)]
        return BlockHashes(
            self._block_tokens,
            self._empty + b"".join([hashes[place][:HASH_BYTES] for place in places]),
        )
