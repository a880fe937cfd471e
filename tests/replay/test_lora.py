from dataclasses import replace

import pytest

from replay.engine import ReplayEngine
from replay.engine_config import EngineConfig
from replay.job import Job
from replay.lora import FROM_HOST_S, FROM_STORAGE_S, LoraSlots


def test_an_adapter_is_loaded_once_and_found_again_while_it_is_kept() -> None:
    slots = LoraSlots(1, 2)
    assert slots.join("a") == pytest.approx(FROM_HOST_S + FROM_STORAGE_S)
    assert slots.join("a") == 0.0
    assert slots.join(None) == 0.0
    slots.leave("a")
    slots.leave("a")
    slots.join("b")
    slots.leave("b")
    assert slots.join("a") == pytest.approx(FROM_HOST_S)


def test_there_is_room_for_so_many_at_a_time() -> None:
    slots = LoraSlots(2, 2)
    slots.join("a")
    slots.join("b")
    assert slots.has_room("a")
    assert slots.has_room(None)
    assert not slots.has_room("c")
    slots.leave("a")
    assert slots.has_room("c")


def test_a_request_without_an_adapter_slot_is_skipped_and_its_wait_recorded() -> None:
    config = replace(EngineConfig(step_noise_ratio=0.0), max_loras=1, max_cpu_loras=1)
    engine = ReplayEngine(config, "seed")
    first = Job(0, 100, 200, 0.0, lora="a")
    other = Job(1, 100, 5, 0.5, lora="b")
    plain = Job(2, 100, 5, 0.6)
    for job in (first, other, plain):
        engine.submit(job)
    ended = engine.advance(1.0)
    assert ended == [plain]
    assert (engine.waiting, engine.deferred, engine.waiting_loras) == (1, 1, 1)
    assert engine.running_loras == 1
    engine.advance(30.0)
    assert other.scheduled is not None
    assert first.last_token is not None
    assert other.scheduled >= first.last_token
    assert other.queue.held > 0.95 * (other.scheduled - other.queued)
    assert sum(other.queue) == pytest.approx(other.scheduled - other.queued)
    assert other.prefill.stall_s == pytest.approx(FROM_HOST_S + FROM_STORAGE_S)


def test_an_engine_without_adapters_refuses_who_asks_for_one() -> None:
    with pytest.raises(ValueError, match="lora: 'a'; allowed: none"):
        ReplayEngine(EngineConfig(), "seed").submit(Job(0, 10, 10, 0.0, lora="a"))
