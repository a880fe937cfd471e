"""Computes a request's prefix ladder: keyed digests of a few prefixes of its prompt and answer.

Two requests with the same digest at a position have the same tokens up to the position. So a replay
can compute cache hits without any prompt. The answer is included, because the next prompt of a
conversation contains it. The key is a secret of the deployment. Without the key, a ladder cannot be
matched to a given prompt.
"""

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Final

PER_DOUBLING: Final = 4
"""Number of additional positions each time that the number of blocks doubles. See
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
"""Positions in blocks: 1, 2, … 8, 10, 12, 14, 16, 20, … 7168."""

HASH_BYTES: Final = 4
"""Number of bytes that the engine core copies of each of vLLM's hashes."""

DIGEST_BYTES: Final = 3
"""A digest has four characters. With a probability of 0.06 %, one of 10,000 other prompts with the
same beginning has the same digest by chance."""

RUNG_CHARS: Final = 4
BLOCK_TOKENS_LIMIT: Final = 99_999
LADDER_CHARS: Final = 6 + RUNG_CHARS * (1 + POSITIONS_LIMIT)
"""Maximum length of a ladder."""

_PERSON: Final = b"tailspan ladder"


class LadderKey:
    """Replicas with the same secret have comparable ladders."""

    def __init__(self, secret: str) -> None:
        key = blake2b(secret.encode("utf-8", "surrogatepass"), person=_PERSON).digest()
        self._keyed = blake2b(digest_size=DIGEST_BYTES, key=key, person=_PERSON)

    def ladder(self, block_tokens: int, hashes: bytes) -> str:
        """Return a ladder as text: the tokens per block, as in `16:`, then four characters per
        hash.

        Args:
            hashes: the first `HASH_BYTES` bytes of vLLM's hash of the empty prompt and of the
                prefixes at `POSITIONS`. If two servers' hashes are not comparable, their first
                hashes differ.
        """
        digests = []
        for place in range(0, len(hashes), HASH_BYTES):
            rung = self._keyed.copy()
            rung.update(hashes[place : place + HASH_BYTES])
            digests.append(rung.digest())
        return f"{block_tokens}:{urlsafe_b64encode(b''.join(digests)).decode()}"
