from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm import guard
from tailspan_vllm.engine_core.queue_obstacles import QueueObstacles
from tailspan_vllm.engine_core.queue_waits import HoldReason, Obstacle


class Waiting(list[Any]):
    def peek_request(self) -> Any:
        return self[0]


LOADING = "WAITING_FOR_REMOTE_KVS"


def request(
    name: str, tokens: int = 100, status: str = "WAITING", lora: int | None = None, **more: Any
) -> Any:
    return SimpleNamespace(
        request_id=name,
        num_tokens=tokens,
        status=SimpleNamespace(name=status),
        lora_request=None if lora is None else SimpleNamespace(lora_int_id=lora),
        **more,
    )


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
        "finished_recving_kv_req_ids": set(),
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
    """vLLM keeps held requests in a queue since 0.18, and in a set since 0.31."""
    held, free = request("held", status=LOADING), request("free")
    newer = scheduler(held, free, running=4, deferred_waiting={"held": held}.values())
    older = scheduler(free, running=4, skipped_waiting=[held])
    for seen in (newer, older):
        assert QueueObstacles(seen).held() == {"held": HoldReason.KV_LOAD}
        assert obstacle(seen) is Obstacle.SEATS
    before = QueueObstacles(scheduler(held))
    assert before.held() == {}
    assert not before.holds_known


def test_if_all_requests_are_held_there_is_no_other_obstacle() -> None:
    held = request("held", status=LOADING)
    newer = scheduler(held, running=4, deferred_waiting={"held": held}.values())
    older = scheduler(running=4, skipped_waiting=[held])
    assert obstacle(newer) is obstacle(older) is None
    sent_for = scheduler(running=4, kv_holding_waiting=Waiting([held]))
    assert obstacle(sent_for) is Obstacle.SEATS
    sent_for.deferred_waiting = {"held": held}.values()
    assert obstacle(sent_for) is None


def test_the_first_eligible_request_is_measured() -> None:
    held, large = request("held", 10, LOADING), request("large", 2000)
    seen = scheduler(held, large, free_blocks=50, deferred_waiting={"held": held}.values())
    assert obstacle(seen) is Obstacle.KV


def holds(*waiting: Any, **more: Any) -> dict[str, HoldReason]:
    return dict(QueueObstacles(scheduler(deferred_waiting=waiting, **more)).held())


@pytest.mark.parametrize("status", ["WAITING_FOR_FSM", "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR"])
def test_a_request_waits_for_its_grammar_until_it_is_compiled(status: str) -> None:
    compiling: Future[None] = Future()
    waiting = request(
        "r", status=status, structured_output_request=SimpleNamespace(_grammar=compiling)
    )
    assert holds(waiting) == {"r": HoldReason.GRAMMAR}
    compiling.set_result(None)
    assert holds(waiting) == {}


def test_a_request_loads_its_cache_until_the_connector_has_finished() -> None:
    loading = request("r", status=LOADING)
    assert holds(loading) == {"r": HoldReason.KV_LOAD}
    assert holds(loading, finished_recving_kv_req_ids={"r"}) == {}


def test_a_skipped_request_that_became_ready_waits_for_the_batch() -> None:
    """In vLLM 0.18 to 0.30, a ready request stays in its own queue until it joins the batch."""
    ready = request("ready", status=LOADING)
    seen = scheduler(
        running=4, skipped_waiting=Waiting([ready]), finished_recving_kv_req_ids={"ready"}
    )
    assert obstacle(seen) is Obstacle.SEATS


def test_a_request_waits_for_its_adapter_while_others_use_all_slots() -> None:
    config = SimpleNamespace(max_loras=1)
    ada, bob, plain = request("ada", lora=1), request("bob", lora=2), request("plain")
    seen = scheduler(deferred_waiting=[ada, bob, plain], lora_config=config)
    seen.running = [request("running", lora=1)]
    watch = QueueObstacles(seen)
    assert watch.held() == {"bob": HoldReason.ADAPTER}
    seen.running = []
    assert watch.held() == {
        "bob": HoldReason.ADAPTER
    }  # the batch is only read again after a change
    watch.batch_changed()
    assert watch.held() == {}


def test_a_request_may_be_held_for_another_reason() -> None:
    """A connector may look up its cache, or a session may wait for its next input."""
    looked_up, session = request("r"), request("s", status="WAITING_FOR_STREAMING_REQ")
    assert holds(looked_up, session) == {"s": HoldReason.OTHER}
    assert holds(looked_up, session, connector=object()) == dict.fromkeys("rs", HoldReason.OTHER)


def test_reasons_that_cannot_be_read_leave_the_held_time_known() -> None:
    before = guard.failures["held"]
    watch = QueueObstacles(scheduler(deferred_waiting=[SimpleNamespace(request_id="r")]))
    assert watch.held() == {"r": HoldReason.OTHER}
    assert not watch.holds_known
    assert watch.held() == {"r": HoldReason.OTHER}
    assert guard.failures["held"] == before + 1
