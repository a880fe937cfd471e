"""Copies the block hashes from which a request's prefix ladder (`request/prefix_ladder.py`) is
computed.

vLLM hashes each full block of tokens together with all earlier blocks. The hash also includes the
adapter, images and cache salt. Source: vllm/v1/request.py, vllm/v1/core/kv_cache_utils.py, 0.12 to
0.33.
"""

import sys
from bisect import bisect_right
from typing import Any, Final, NamedTuple

from tailspan_vllm.request.prefix_ladder import BLOCK_TOKENS_LIMIT, HASH_BYTES, POSITIONS

_PLACES: Final = tuple(
    tuple(position - 1 for position in POSITIONS[:number]) for number in range(len(POSITIONS) + 1)
)
"""Entry n has the indices of the hashes to copy for a ladder of n digests."""


class BlockHashes(NamedTuple):
    """The first `HASH_BYTES` bytes of each hash. The first hash is for the empty prompt."""

    block_tokens: int
    hashes: bytes


class HashReader:
    """Reads the block hashes of an engine's requests. `scheduler` must already have hashed a
    prompt.

    Raises:
        LookupError: this vLLM lacks the attribute that the message names.
    """

    def __init__(self, scheduler: Any) -> None:
        size = getattr(scheduler, "hash_block_size", None)
        if size is None:  # earlier versions of vLLM
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
        """The request's hashes, or None if vLLM has not hashed all blocks."""
        hashes: list[bytes] = request.block_hashes
        number = len(hashes)
        if number != request.num_tokens // self._block_tokens:
            return None
        places = _PLACES[bisect_right(POSITIONS, number)]
        return BlockHashes(
            self._block_tokens,
            self._empty + b"".join([hashes[place][:HASH_BYTES] for place in places]),
        )
