import json
from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pytest

from benchmarks._diagnosis_baselines import alerted, by_phase, by_score
from benchmarks._diagnosis_draws import NONE, PAIR, SINGLE, drawn, kinds_of
from benchmarks._diagnosis_results import DiagnosisResult, outcome, passed, read
from benchmarks._diagnosis_table import table
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric, Question, Span
from simulator.fault import CAUSES

BASELINE, WINDOW = Span(0, 100 * 10**9), Span(100 * 10**9, 200 * 10**9)

A_RESULT = DiagnosisResult(
    number=0,
    seed=1,
    kind=SINGLE,
    causes=("preemption",),
    severities=(1.0,),
    load=0.5,
    metric="itl_max",
    requests=1000,
    verdict="incident",
    found=("preemption", "kv_cache_exhausted"),
    shares=(0.7, 0.3),
    intervals=(),
    accounted=("preemption", "kv_cache_exhausted"),
    accounted_shares=(0.7, 0.3),
    not_replayed="the replay cannot remove preemption",
    true_shares=(1.0,),
    unexplained=0.0,
    by_phase=("decode_batch_growth",),
    by_score=("preemption",),
    explain_s=0.01,
    replay_s=0.0,
    took_s=1.0,
)
A_PAIR = replace(
    A_RESULT,
    kind=PAIR,
    causes=("preemption", "engine_stall"),
    severities=(1.0, 1.0),
    true_shares=(0.6, 0.4),
)
NOTHING = replace(
    A_RESULT, kind=NONE, causes=(), severities=(), verdict="no_incident", found=(), shares=()
)


def requests(**grown: float) -> Requests:
    """Return a thousand requests per range; some parts are longer in the second range."""
    at = np.linspace(0, 200e9, 2000, endpoint=False).astype(np.int64)
    numbers = dict.fromkeys(("frontend_s", "queue_s", "prefill_s", "decode_s", "delivery_s"), 0.1)
    columns = {
        name: np.where(at < 100 * 10**9, usual_s, usual_s + grown.get(name, 0.0))
        for name, usual_s in numbers.items()
    }
    columns["ttft_s"] = columns["frontend_s"] + columns["queue_s"] + columns["prefill_s"]
    columns["e2e_s"] = columns["ttft_s"] + columns["decode_s"] + columns["delivery_s"]
    return Requests(at, columns)


def test_each_cause_is_drawn_equally_often() -> None:
    """Three of five cases have one fault, one has two faults, and one has none."""
    causes = len(CAUSES)
    kinds = kinds_of(15 * causes, 4, None)
    assert Counter(kind for kind, _ in kinds) == {
        SINGLE: 9 * causes,
        PAIR: 3 * causes,
        NONE: 3 * causes,
    }
    singles = Counter(causes[0] for kind, causes in kinds if kind == SINGLE)
    assert singles == dict.fromkeys(CAUSES, 9)
    assert all(len(set(causes)) == 2 for kind, causes in kinds if kind == PAIR)


def test_a_case_depends_only_on_the_seed_and_its_number() -> None:
    assert drawn(3, 7, SINGLE, ("preemption",)) == drawn(3, 7, SINGLE, ("preemption",))
    assert (
        drawn(3, 7, SINGLE, ("preemption",)).config != drawn(3, 8, SINGLE, ("preemption",)).config
    )


@pytest.mark.parametrize("number", range(20))
def test_the_fault_begins_in_the_window(number: int) -> None:
    case = drawn(number, 1, SINGLE, ("engine_stall",))
    began = case.config.started_unix_ns + round(case.config.faults[0].start_s * 1e9)
    assert case.baseline.to_unix_ns == case.window.from_unix_ns
    assert case.window.from_unix_ns <= began < case.window.to_unix_ns


@pytest.mark.parametrize(
    ("phase", "cause"), [("queue_s", "load_exceeds_capacity"), ("delivery_s", "network_or_client")]
)
def test_the_phase_that_grew_most_comes_first(phase: str, cause: str) -> None:
    question = Question(Metric.E2E, WINDOW, BASELINE)
    assert by_phase(requests(**{phase: 1.0}), question)[0] == cause


def test_the_series_with_the_largest_score_is_first() -> None:
    """The score does not depend on the size of the growth in seconds."""
    question = Question(Metric.E2E, WINDOW, BASELINE)
    found = by_score(requests(frontend_s=1.0, delivery_s=0.5), Servers(), question)
    assert found[0] == "frontend_cpu"


def test_the_alert_names_the_latency_that_grew_most() -> None:
    """The alert names the latency that grew by the largest factor, not by the most seconds."""
    assert alerted(requests(queue_s=1.0), BASELINE, WINDOW) is Metric.QUEUE
    assert alerted(requests(delivery_s=3.0), BASELINE, WINDOW) is Metric.E2E


def test_outcomes() -> None:
    assert outcome(A_RESULT) == "right"
    assert outcome(replace(A_RESULT, found=("engine_stall", "preemption"))) == "WRONG"
    assert outcome(replace(A_RESULT, found=())) == "UNEXPLAINED"
    assert outcome(replace(A_RESULT, verdict="no_incident", found=())) == "not seen"
    assert outcome(replace(A_RESULT, verdict="insufficient_data", found=())) == "abstained"
    assert outcome(replace(A_PAIR, found=("engine_stall", "x", "preemption"))) == "both"
    assert outcome(replace(A_PAIR, found=("engine_stall", "x", "y", "preemption"))) == "ONE"
    hidden = replace(A_PAIR, true_shares=(0.96, 0.04))
    assert outcome(replace(hidden, found=("preemption",))) == "larger"
    assert outcome(replace(hidden, found=("engine_stall",))) == "WRONG"
    assert outcome(NOTHING) == "right"
    assert outcome(replace(NOTHING, verdict="incident")) == "FALSE ALARM"


def test_a_missed_bar_fails() -> None:
    assert passed([A_RESULT, A_PAIR, NOTHING]) is False  # one cause of the pair is missing
    both = replace(A_PAIR, found=("engine_stall", "preemption"))
    hidden = replace(A_PAIR, true_shares=(1.02, -0.02))
    assert passed([A_RESULT, hidden, NOTHING])  # only one cause can be found
    assert passed([A_RESULT, both, NOTHING])
    assert not passed([replace(A_RESULT, found=()), both, NOTHING])
    assert not passed([A_RESULT, both, replace(NOTHING, verdict="incident")])


def test_the_table_names_the_wrong_answers() -> None:
    wrong = replace(A_RESULT, found=("engine_stall",))
    shown = "\n".join(table([A_RESULT, wrong, A_PAIR, NOTHING]))
    assert "preemption                 2  50.0%" in shown
    assert "engine_stall 1" in shown
    for name in ("tailspan explain", "largest phase", "BARO", "chance"):
        assert name in shown


def test_a_stored_result_is_read_unchanged() -> None:
    """A benchmark that was stopped continues from its stored results."""
    for result in (A_RESULT, A_PAIR, NOTHING):
        assert read(json.dumps(asdict(result))) == result


def test_an_empty_table_is_not_a_failure() -> None:
    assert list(table([]))
