"""Parse prefix ladders, which show which requests begin with the same tokens. Pure.

A ladder is a text. It begins with the number of tokens per KV-cache block, such as `16:`. Then it
has a digest of four characters (a rung) for each of several prefixes of the prompt. The first rung
is the digest of the empty prompt. The next rungs are the digests of the prefixes that end at
`POSITIONS`. If two requests have equal rungs up to a position, their tokens are the same up to this
position. The plugin computes the ladders (`tailspan_vllm/request/prefix_ladder.py`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tailspan_vllm.request.prefix_ladder import (
    LADDER_CHARS,
    POSITIONS,
    POSITIONS_LIMIT,
    RUNG_CHARS,
)

__all__ = ["LADDER_CHARS", "POSITIONS", "Ladders", "is_ladder", "read_ladders"]

_LADDER: Final = re.compile(
    rf"[1-9][0-9]{{0,4}}:(?:[A-Za-z0-9_-]{{{RUNG_CHARS}}}){{1,{1 + POSITIONS_LIMIT}}}"
)


@dataclass(frozen=True, slots=True, eq=False)
class Ladders:
    """The ladders of n requests."""

    block_tokens: NDArray[np.int64]
    """(n,) tokens per KV-cache block. 0 if the request has no ladder."""
    offsets: NDArray[np.int64]
    """(n + 1,) The rungs of request i are `rungs[offsets[i]:offsets[i + 1]]`."""
    rungs: NDArray[np.uint32]
    """(m,) the rungs of all requests. Each different rung has its own number."""


def is_ladder(text: str) -> bool:
    """Whether a text is a ladder."""
    return _LADDER.fullmatch(text) is not None


def read_ladders(texts: Sequence[str | None]) -> Ladders:
    """Parse the ladders of requests. An invalid text counts as absent."""
    heads, rungs = [], []
    for text in texts:
        head, _, rest = text.partition(":") if text and is_ladder(text) else ("0", "", "")
        heads.append(int(head))
        rungs.append(rest)
    lengths = [len(rest) // RUNG_CHARS for rest in rungs]
    return Ladders(
        np.array(heads, dtype=np.int64),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.frombuffer("".join(rungs).encode(), dtype="<u4"),
    )
