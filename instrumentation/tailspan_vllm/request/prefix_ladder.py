"""The prefix ladder of a request: keyed digests of a few prefixes of its prompt and answer.

Two requests with the same digest at a position have the same tokens up to there. So a replay can
decide what another router or another cache size would find cached, without any prompt. A ladder
includes the answer, because the next prompt of a conversation continues it. The key is a secret of
the deployment: without it, a known prompt cannot be compared with a ladder.

The engine core copies a few bytes of vLLM's own block hashes (`engine_core/block_hashes.py`), and
the front end's reading thread makes the ladder of them, because a keyed digest costs too much for
the engine core.
"""

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Final

PER_DOUBLING: Final = 4
"""Positions between a number of blocks and twice as many. docs/benchmarks.md#prefix-ladders has the
error for other numbers."""

POSITIONS_LIMIT: Final = 47
"""A ladder then has at most 198 characters."""


def _positions() -> tuple[int, ...]:
    found: list[int] = []
    step, at = 1, 1
    while len(found) < POSITIONS_LIMIT:
        found.append(at)
        if at >= 2 * PER_DOUBLING * step:
            step *= 2
        at += step
    return tuple(found)


POSITIONS: Final = _positions()
"""Blocks from the prompt's start to each rung: 1, 2, … 8, 10, 12, 14, 16, 20, … 7168. A ladder ends
with the last whole block."""

HASH_BYTES: Final = 4
"""Bytes of each of vLLM's hashes that the engine core copies."""

DIGEST_BYTES: Final = 3
"""24 bits, and four characters. A prompt is mistaken for one of 10,000 others with the same
beginning in 0.06 % of cases, and then only up to the next rung."""

RUNG_CHARS: Final = 4
BLOCK_TOKENS_LIMIT: Final = 99_999
LADDER_CHARS: Final = 6 + RUNG_CHARS * (1 + POSITIONS_LIMIT)
"""Maximum length of a ladder."""

_PERSON: Final = b"tailspan ladder"


class LadderKey:
    """The secret key of a deployment.

    Args:
        secret: any text. Replicas with the same secret have comparable ladders.
    """

    def __init__(self, secret: str) -> None:
        key = blake2b(secret.encode("utf-8", "surrogatepass"), person=_PERSON).digest()
        # Copying a keyed hash takes half the time of creating one.
        self._keyed = blake2b(digest_size=DIGEST_BYTES, key=key, person=_PERSON)

    def ladder(self, block_tokens: int, hashes: bytes) -> str:
        """Return a ladder as text: `16:` and four characters for each hash.

        Args:
            block_tokens: tokens per block.
            hashes: `HASH_BYTES` of vLLM's hash of the empty prompt, and of the tokens up to each of
                `POSITIONS`. The first rung differs between servers whose hashes are not comparable.
        """
        digests = []
        for place in range(0, len(hashes), HASH_BYTES):
            rung = self._keyed.copy()
            rung.update(hashes[place : place + HASH_BYTES])
            digests.append(rung.digest())
        return f"{block_tokens}:{urlsafe_b64encode(b''.join(digests)).decode()}"
