import pytest
from tailspan_vllm.request.prefix_ladder import HASH_BYTES, LADDER_CHARS, POSITIONS, LadderKey

from telemetry.prefix_ladders import is_ladder, read_ladders

HASHES = b"".join(n.to_bytes(HASH_BYTES, "little") for n in range(1 + len(POSITIONS)))
LONGEST = LadderKey("a key of 16 characters").ladder(16, HASHES)


def test_the_plugins_ladders_are_read() -> None:
    short = LONGEST[: 3 + 4 * 3]
    found = read_ladders([LONGEST, None, short])
    assert found.block_tokens.tolist() == [16, 0, 16]
    assert found.offsets.tolist() == [0, 1 + len(POSITIONS), 1 + len(POSITIONS), 4 + len(POSITIONS)]
    assert found.rungs[-3:].tolist() == found.rungs[:3].tolist()
    assert len(set(found.rungs.tolist())) == 1 + len(POSITIONS)


@pytest.mark.parametrize(
    "text",
    [
        *("", "16", "16:", ":AAAA", "0:AAAA", "16:AAA", "16:AAAAA", "16:AA=A", "16:AA A"),
        *("-1:AAAA", "123456:AAAA", "16:äöüß", "١٦:AAAA", "16:AAAA\n", " 16:AAAA", "16:AAAA:BBBB"),
        "16:" + "AAAA" * (2 + len(POSITIONS)),
        "16:" + "A" * 4 * LADDER_CHARS,
    ],
)
def test_an_invalid_text_is_not_a_ladder(text: str) -> None:
    assert not is_ladder(text)
    assert read_ladders([text]).block_tokens.tolist() == [0]
