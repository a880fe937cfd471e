"""Computes a request's prefix ladder: keyed digests of a few prefixes of its prompt and answer.

Two requests with the same digest at a position have the same tokens up to that position, so a
replay can compute cache hits without any prompt. A ladder includes the answer, because the next
prompt of a conversation contains it. The key is a secret of the deployment. Without the key, it
cannot be checked whether a ladder belongs to a given prompt.

The engine core copies a few bytes of vLLM's own block hashes (`engine_core/block_hashes.py`). The
front end's reading thread computes the keyed digests.
"""

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Final

PER_DOUBLING: Final = 4
"""Number of additional positions in a ladder each time that the number of blocks doubles. See
docs/benchmarks.md#prefix-ladders."""

POSITIONS_LIMIT: Final = 47


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
"""Number of blocks in the prefix at each position: 1, 2, … 8, 10, 12, 14, 16, 20, … 7168."""

HASH_BYTES: Final = 4
"""Number of bytes that the engine core copies of each of vLLM's hashes."""

DIGEST_BYTES: Final = 3
"""Length of a digest: 24 bits, which are four characters. If 10,000 other prompts have the same
beginning, the probability that at least one of them has the same digest by chance is 0.06 %."""

RUNG_CHARS: Final = 4
BLOCK_TOKENS_LIMIT: Final = 99_999
LADDER_CHARS: Final = 6 + RUNG_CHARS * (1 + POSITIONS_LIMIT)
"""Maximum length of a ladder."""

_PERSON: Final = b"tailspan ladder"


class LadderKey:
    """The secret key of a deployment, derived from a secret text. The ladders of two replicas are
    comparable if both replicas have the same secret text."""

    def __init__(self, secret: str) -> None:
        key = blake2b(secret.encode("utf-8", "surrogatepass"), person=_PERSON).digest()
        self._keyed = blake2b(digest_size=DIGEST_BYTES, key=key, person=_PERSON)

    def ladder(self, block_tokens: int, hashes: bytes) -> str:
        """Return a ladder as text: the tokens per block, as in `16:`, then four characters per
        hash.

        Args:
            block_tokens: tokens per block.
            hashes: the first `HASH_BYTES` bytes of vLLM's hash of the empty prompt, and of the
                prefixes at `POSITIONS`. The first hashes of two servers differ if their hashes are
                not comparable.
        """
        digests = []
        for place in range(0, len(hashes), HASH_BYTES):
            rung = self._keyed.copy()
            rung.update(hashes[place : place + HASH_BYTES])
            digests.append(rung.digest())
        return f"{block_tokens}:{urlsafe_b64encode(b''.join(digests)).decode()}"
