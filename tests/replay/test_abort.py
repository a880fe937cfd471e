import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.engine import ReplayEngine
from replay.engine_config import EngineConfig
from replay.job import Job

SMALL = EngineConfig(max_num_seqs=4, max_num_batched_tokens=256, num_gpu_blocks=3_000)


def job(number: int, prompt: int = 100, output: int = 200) -> Job:
    return Job(number, prompt, output, 0.0)


def test_a_waiting_job_is_aborted_at_once() -> None:
    engine = ReplayEngine(SMALL, "seed")
    for number in range(6):
        engine.submit(job(number))
    engine.advance(0.5)
    assert engine.waiting == 2
    gone = engine.abort(5)
    assert gone is not None
    assert (gone.number, gone.scheduled) == (5, None)
    assert engine.waiting == 1
    assert sorted(each.number for each in engine.advance(100.0)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_the_rest_of_the_queue_keeps_its_order(policy: str) -> None:
    config = EngineConfig(max_num_seqs=1, policy=policy)  # type: ignore[arg-type]
    engine = ReplayEngine(config, "seed")
    for number in range(5):
        engine.submit(job(number, output=20))
    engine.advance(0.01)
    assert engine.abort(2) is not None
    assert [each.number for each in engine.advance(100.0)] == [0, 1, 3, 4]


def test_a_running_job_is_aborted_at_the_end_of_the_step() -> None:
    engine = ReplayEngine(SMALL, "seed")
    engine.submit(job(0))
    engine.submit(job(1))
    engine.advance(0.5)
    assert engine.abort(0) is None
    (gone,) = engine.advance(0.6)
    assert gone.number == 0
    assert gone.aborted is not None
    assert 0.5 <= gone.aborted < 0.6
    assert 0 < gone.made_tokens < 200
    assert gone.last_token == gone.aborted
    (other,) = engine.advance(100.0)
    assert (other.made_tokens, other.aborted) == (200, None)


def test_a_job_aborted_before_its_first_token_has_none() -> None:
    engine = ReplayEngine(SMALL, "seed")
    engine.submit(job(0, prompt=5_000))
    engine.advance(0.02)
    assert engine.running == 1
    engine.abort(0)
    (gone,) = engine.advance(10.0)
    assert (gone.first_token, gone.last_token) == (None, None)
    assert engine.kv.free == SMALL.num_gpu_blocks


def test_a_job_that_has_ended_or_is_unknown_is_not_aborted() -> None:
    engine = ReplayEngine(SMALL, "seed")
    engine.submit(job(0, output=2))
    assert len(engine.advance(10.0)) == 1
    assert engine.abort(0) is None
    assert engine.abort(7) is None


@given(
    aborts=st.lists(st.tuples(st.integers(0, 11), st.floats(0.0, 4.0)), max_size=12),
    drafts=st.sampled_from([0, 3]),
)
def test_every_job_ends_once_and_all_blocks_are_free_again(
    aborts: list[tuple[int, float]], drafts: int
) -> None:
    config = EngineConfig(
        max_num_seqs=8,
        max_num_batched_tokens=256,
        num_gpu_blocks=60,
        max_model_len=512,
        num_speculative_tokens=drafts,
    )
    engine = ReplayEngine(config, "seed")
    for number in range(12):
        engine.submit(job(number, prompt=60 + 20 * number, output=30 + 10 * number))
    ended: list[Job] = []
    for number, at in sorted(aborts, key=lambda each: each[1]):
        ended += engine.advance(at)
        gone = engine.abort(number)
        ended += [] if gone is None else [gone]
    ended += engine.advance(1_000.0)
    assert sorted(each.number for each in ended) == list(range(12))
    assert engine.kv.free == config.num_gpu_blocks
    assert engine.outstanding == 0
