from dataclasses import replace
from pathlib import Path

import pytest

from analysis.compare.question import CompareQuestion, CompareSide
from analysis.compare.total_change import total_change
from replay.engine_config import EngineConfig
from simulator.dataset import Dataset, run
from simulator.workload import Workload
from tests.analysis.compare.two_windows import AFTER, BEFORE, CONFIG, START_S, opened, put


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            *(EngineConfig(num_speculative_tokens=4), EngineConfig()),
            "speculative decoding was switched off",
        ),
        (
            *(EngineConfig(), EngineConfig(enable_prefix_caching=False)),
            "prefix caching was switched off",
        ),
    ],
)
def test_a_server_that_needs_unrecorded_values_is_not_replayed(
    tmp_path: Path, before: EngineConfig, after: EngineConfig, reason: str
) -> None:
    """Requests after the change do not contain what the server before it would have done."""
    windows = [window(START_S, 5, before), window(START_S + 600, 6, after)]
    question = CompareQuestion(CompareSide(BEFORE), CompareSide(AFTER), "tpot")
    for engine in opened(tmp_path, lambda url: put(url, windows)):
        found = total_change(engine, question)
    assert found.total_change_s is None
    assert reason in (found.reason or "")


def window(start_s: int, seed: int, engine: EngineConfig) -> Dataset:
    config = replace(CONFIG, replicas=1, workload=Workload(rate_per_s=2.0), engine=engine)
    return run(replace(config, seed=seed, started_unix_ns=start_s * 10**9))
