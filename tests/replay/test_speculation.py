from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.engine import ReplayEngine
from replay.engine_config import EngineConfig
from replay.job import Job

DRAFTING = replace(EngineConfig(), num_speculative_tokens=4, step_noise_ratio=0.0)


def _tpot_s(acceptance: float, config: EngineConfig = DRAFTING) -> float:
    engine = ReplayEngine(config, "seed")
    job = Job(0, 200, 300, 0.0, acceptance=acceptance)
    engine.submit(job)
    engine.advance(60.0)
    assert job.last_token is not None
    assert job.first_token is not None
    return (job.last_token - job.first_token) / 299


def test_the_better_the_guesses_the_sooner_the_answer() -> None:
    plain = _tpot_s(0.0, replace(DRAFTING, num_speculative_tokens=0))
    assert _tpot_s(1.0) < _tpot_s(0.7) < plain < _tpot_s(0.0)
    assert _tpot_s(1.0) == pytest.approx(_tpot_s(0.0) / 5, rel=0.05)


@settings(deadline=None, max_examples=40)
@given(
    asks=st.lists(
        st.tuples(st.integers(1, 200), st.integers(1, 120), st.floats(0.0, 1.0)),
        min_size=1,
        max_size=12,
    )
)
def test_every_job_gets_all_its_tokens_and_its_parts_sum(
    asks: list[tuple[int, int, float]],
) -> None:
    config = replace(
        DRAFTING, max_model_len=320, num_gpu_blocks=28, max_num_seqs=6, max_num_batched_tokens=64
    )
    engine = ReplayEngine(config, "seed")
    jobs = [Job(n, *ask[:2], 0.01 * n, acceptance=ask[2]) for n, ask in enumerate(asks)]
    for job in jobs:
        engine.submit(job)
    assert len(engine.advance(600.0)) == len(jobs)
    assert engine.kv.free == config.num_gpu_blocks
    totals = engine.totals
    assert totals.draft_tokens == 4 * totals.drafts
    assert totals.accepted_tokens <= totals.draft_tokens
    for job, ask in zip(jobs, asks, strict=True):
        assert job.made_tokens == ask[1]
        assert job.last_token is not None
        assert job.first_token is not None
        parts = job.decode.of(job.last_token - job.first_token)
        assert sum(parts) == pytest.approx(job.last_token - job.first_token, abs=1e-9)
