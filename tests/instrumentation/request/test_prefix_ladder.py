import re
from itertools import pairwise

import pytest
from tailspan_vllm.request.prefix_ladder import (
    HASH_BYTES,
    LADDER_CHARS,
    POSITIONS,
    POSITIONS_LIMIT,
    RUNG_CHARS,
    LadderKey,
)

SECRET = "a secret of this deployment"


def hashes(*names: int) -> bytes:
    return b"".join(name.to_bytes(HASH_BYTES, "little") for name in names)


def rungs(ladder: str) -> list[str]:
    _, _, text = ladder.partition(":")
    return [text[at : at + RUNG_CHARS] for at in range(0, len(text), RUNG_CHARS)]


def test_equal_prefixes_have_equal_rungs_and_others_do_not() -> None:
    key = LadderKey(SECRET)
    one, other = (rungs(key.ladder(16, hashes(0, 1, 2, last))) for last in (3, 4))
    assert one[:3] == other[:3]
    assert one[3] != other[3]
    assert len({*one, *other}) == 5


def test_without_the_key_no_hash_can_be_recognised() -> None:
    known = hashes(0, 1, 2)
    mine, theirs = (LadderKey(secret).ladder(16, known) for secret in (SECRET, SECRET + "!"))
    assert mine == LadderKey(SECRET).ladder(16, known)
    assert not set(rungs(mine)) & set(rungs(theirs))
    assert mine != LadderKey(SECRET).ladder(32, known)


@pytest.mark.parametrize("secret", ["x" * 10_000, "päss\udc80wörd", "0123456789abcdef"])
def test_any_text_is_a_key(secret: str) -> None:
    assert len(rungs(LadderKey(secret).ladder(16, hashes(0, 1)))) == 2


def test_the_longest_ladder_is_within_the_limit() -> None:
    longest = LadderKey(SECRET).ladder(99_999, hashes(*range(1 + POSITIONS_LIMIT)))
    assert len(longest) == LADDER_CHARS <= 200
    assert re.fullmatch(r"99999:[A-Za-z0-9_-]+", longest)


def test_rungs_are_never_more_than_a_quarter_apart() -> None:
    assert POSITIONS[:8] == tuple(range(1, 9))
    assert max(after / before for before, after in pairwise(POSITIONS[7:])) <= 1.25
    assert len(POSITIONS) == POSITIONS_LIMIT
    assert POSITIONS[-1] * 16 > 100_000
