from types import SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm.engine_core.queue_obstacles import QueueObstacles
from tailspan_vllm.engine_core.queue_waits import Obstacle


class Waiting(list[Any]):
    def peek_request(self) -> Any:
        return self[0]


def request(name: str, tokens: int = 100, status: str = "WAITING") -> Any:
    return SimpleNamespace(request_id=name, num_tokens=tokens, status=SimpleNamespace(name=status))


def scheduler(*waiting: Any, running: int = 1, free_blocks: int = 1000, **more: Any) -> Any:
    """Return a scheduler with 4 slots, 512 tokens per step and blocks of 16 tokens."""
    cache = SimpleNamespace(
        kv_cache_config=SimpleNamespace(kv_cache_groups=[None]),
        block_pool=SimpleNamespace(get_num_free_blocks=lambda: free_blocks),
    )
    given: dict[str, Any] = {
        "waiting": Waiting(waiting),
        "running": [None] * running,
        "max_num_running_reqs": 4,
        "max_num_scheduled_tokens": 512,
        "scheduler_config": SimpleNamespace(enable_chunked_prefill=True),
        "vllm_config": SimpleNamespace(cache_config=SimpleNamespace(block_size=16)),
        "kv_cache_manager": cache,
    }
    return SimpleNamespace(**{**given, **more})


def obstacle(of: Any, tokens: int = 10, preempted: bool = False) -> Obstacle | None:
    watch = QueueObstacles(of)
    output = SimpleNamespace(total_num_scheduled_tokens=tokens)
    return watch.obstacle(output, watch.held(), preempted)


UNCHUNKED = SimpleNamespace(enable_chunked_prefill=False)
PAUSED = SimpleNamespace(name="PAUSED_NEW")


@pytest.mark.parametrize(
    ("seen", "tokens", "expected"),
    [
        (scheduler(), 512, None),
        (scheduler(request("a"), running=4), 4, Obstacle.SEATS),
        (scheduler(request("a"), running=4, max_num_active_reqs=6), 512, Obstacle.BUDGET),
        (scheduler(request("a"), running=3, num_waiting_for_streaming_input=1), 4, Obstacle.SEATS),
        (scheduler(request("a"), running=4), 512, Obstacle.SEATS),
        (scheduler(request("a")), 512, Obstacle.BUDGET),
        (scheduler(request("a"), free_blocks=5), 10, Obstacle.KV),
        (scheduler(request("a")), 10, Obstacle.BUDGET),
        (scheduler(request("a", 600), scheduler_config=UNCHUNKED), 10, Obstacle.BUDGET),
        (scheduler(request("a"), _pause_state=PAUSED), 0, Obstacle.HELD),
        (scheduler(request("a", status="WAITING_FOR_FSM")), 10, Obstacle.HELD),
    ],
)
def test_the_obstacle_is_reported(seen: Any, tokens: int, expected: Obstacle | None) -> None:
    assert obstacle(seen, tokens) is expected


def test_a_step_that_had_to_preempt_lacked_blocks() -> None:
    assert obstacle(scheduler(request("a")), preempted=True) is Obstacle.KV


def test_held_requests_are_found_in_every_version() -> None:
    """vLLM stores held requests in a queue since 0.18 and in a set since 0.31."""
    held, free = request("held"), request("free")
    newer = scheduler(held, free, running=4, deferred_waiting={"held": held}.values())
    older = scheduler(free, running=4, skipped_waiting=[held])
    for seen in (newer, older):
        assert QueueObstacles(seen).held() == {"held"}
        assert obstacle(seen) is Obstacle.SEATS
    assert QueueObstacles(scheduler(held)).held() == set()


def test_if_all_requests_are_held_there_is_no_other_obstacle() -> None:
    held = request("held")
    newer = scheduler(held, running=4, deferred_waiting={"held": held}.values())
    older = scheduler(running=4, skipped_waiting=[held])
    assert obstacle(newer) is obstacle(older) is None
    sent_for = scheduler(running=4, kv_holding_waiting=Waiting([held]))
    assert obstacle(sent_for) is Obstacle.SEATS
    sent_for.deferred_waiting = {"held": held}.values()
    assert obstacle(sent_for) is None


def test_the_first_eligible_request_is_measured() -> None:
    held, large = request("held", 10), request("large", 2000)
    seen = scheduler(held, large, free_blocks=50, deferred_waiting={"held": held}.values())
    assert obstacle(seen) is Obstacle.KV
