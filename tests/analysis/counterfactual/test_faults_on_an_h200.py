"""Explains faults that were recorded on a GPU.

The folder `faults_on_an_h200` contains the telemetry of vLLM 0.23 with Llama-3-8B on an NVIDIA H200
(docs/benchmarks.md#root-causes-on-a-gpu). The parts of the requests and the step models were
computed with the present ledger, from the recorded durations and work of all steps.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine

from analysis.counterfactual.explain import with_replayed_shares
from analysis.explain import explain_question
from diagnosis.explanation import Explanation, ExplanationVerdict
from diagnosis.question import Metric, Question, Span
from store.database import open_database
from store.schema import GPUS, REQUESTS, SAMPLES, STARTS

FOLDER = Path(__file__).with_name("faults_on_an_h200")
FAULTS = {each["cause"]: each for each in json.loads((FOLDER / "truth.json").read_text())}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    path = tmp_path_factory.mktemp("h200") / "tailspan.db"
    engine = open_database(f"sqlite:///{path}")
    with engine.begin() as connection:
        for table in (REQUESTS, SAMPLES, GPUS, STARTS):
            rows = pq.read_table(FOLDER / f"{table.name}.parquet").to_pylist()
            connection.execute(table.insert(), rows)
    return engine


def explained(recording: Engine, fault: dict[str, Any], *, replay: bool = True) -> Explanation:
    def span(name: str) -> Span:
        begun_s, ended_s = fault[name]["begun_s"], fault[name]["ended_s"]
        return Span(int(begun_s * 1e9), int(ended_s * 1e9))

    question = Question(Metric(fault["metric"]), span("window"), span("baseline"))
    found = explain_question(recording, question)
    return with_replayed_shares(recording, found) if replay else found


@pytest.mark.parametrize("cause", ["engine_stall", "longer_outputs"])
def test_a_fault_explains_all_of_the_growth(recording: Engine, cause: str) -> None:
    found = explained(recording, FAULTS[cause])
    assert [each.id for each in found.causes] == [cause]
    (named,) = found.causes
    assert named.low is not None
    assert named.low > 0.85


def test_two_faults_have_their_true_shares(recording: Engine) -> None:
    """The true shares were measured with each fault alone, and with both."""
    found = explained(recording, FAULTS["longer_outputs+engine_stall"])
    shares = {each.id: each for each in found.causes}
    for cause, true in (("longer_outputs", 0.81), ("engine_stall", 0.18)):
        low, high = shares[cause].low, shares[cause].high
        assert low is not None
        assert high is not None
        assert low <= true <= high


def test_longer_prompts_are_not_stalls_of_the_engine(recording: Engine) -> None:
    """The launch of a longer prompt delays the outputs of the step before it."""
    found = explained(recording, FAULTS["longer_prompts"], replay=False)
    assert [each.id for each in found.causes] == ["longer_prompts"]


def test_another_process_on_the_gpu_is_named_first(recording: Engine) -> None:
    found = explained(recording, FAULTS["noisy_neighbour"], replay=False)
    assert found.causes[0].id == "noisy_neighbour"


def test_without_a_fault_there_is_no_incident(recording: Engine) -> None:
    found = explained(recording, FAULTS["no_incident"])
    assert found.verdict is ExplanationVerdict.NO_INCIDENT
