import random

from simulator.conversations import ActiveConversations, Conversations
from simulator.workload import Workload


def test_each_turn_contains_the_whole_conversation() -> None:
    turns = ActiveConversations(Conversations(at_once=3, turns=4))
    chance = random.Random("turns")
    last: dict[str, int] = {}
    counts: dict[str, int] = {}
    for _ in range(200):
        name, prompt_tokens = turns.next(chance, 100)
        if name in last:
            assert 30 <= prompt_tokens - last[name] - 100 <= 250
        last[name] = prompt_tokens
        counts[name] = counts.get(name, 0) + 1
    assert max(counts.values()) == 4
    assert len(counts) > 40


def test_they_are_the_share_of_the_traffic_that_was_asked_for() -> None:
    workload = Workload(rate_per_s=10.0, conversations=Conversations(share=0.5))
    requests = list(workload.arrivals("talk", to_s=200.0))
    talking = [r for r in requests if r.prefix is not None and r.prefix.name.startswith("talk/")]
    assert 0.4 < len(talking) / len(requests) < 0.6
    assert all(r.prefix is not None and r.prefix.tokens == r.prompt_tokens - 1 for r in talking)
