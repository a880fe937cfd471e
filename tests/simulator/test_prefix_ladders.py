from typing import Any

from simulator.prefix_ladders import ladder
from simulator.workload import Prefix, SimulatedRequest
from telemetry.prefix_ladders import is_ladder, read_ladders


def request(prompt_tokens: int = 900, **changed: Any) -> SimulatedRequest:
    return SimulatedRequest(
        at_s=0.0, tenant="acme", prompt_tokens=prompt_tokens, output_tokens=5, **changed
    )


def shared(one: str | None, other: str | None) -> int:
    """Return the number of keys that two ladders share, from their start."""
    found = read_ladders([one, other])
    rungs, others = found.rungs[: found.offsets[1]], found.rungs[found.offsets[1] :]
    pairs = [a == b for a, b in zip(rungs.tolist(), others.tolist(), strict=False)]
    return (*pairs, False).index(False)


def test_requests_share_the_rungs_of_their_prefix() -> None:
    system = Prefix("acme/support", 640)
    one, other = (ladder(request(prefix=system), 16, own) for own in "ab")
    assert one is not None
    assert is_ladder(one)
    assert shared(one, other) == 1 + 17  # 17 rungs reach 40 blocks
    assert shared(one, ladder(request(), 16, "c")) == 1
    assert shared(one, ladder(request(prefix=system, lora="l"), 16, "d")) == 1
    assert shared(one, ladder(request(prefix=Prefix("x", 640)), 16, "e")) == 1


def test_a_turn_has_all_rungs_of_the_previous_turn() -> None:
    turns = [
        ladder(request(tokens, prefix=Prefix("talk/1", tokens - 1)), 16, str(tokens))
        for tokens in (2_000, 2_400)
    ]
    assert turns[0] is not None
    assert turns[1] is not None
    assert turns[1].startswith(turns[0][:-4])


def test_a_prompt_shorter_than_a_block_has_no_ladder() -> None:
    assert ladder(request(15), 16, "a") is None
