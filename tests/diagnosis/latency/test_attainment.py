import numpy as np
import pytest

from diagnosis.explanation import Explanation, ExplanationVerdict
from diagnosis.inputs.requests import BoolArray, Requests
from diagnosis.latency.attainment import LatencyThreshold
from diagnosis.question import Metric
from tests.diagnosis.making import S, asked, labels, later, quiet, summed


def everyone(requests: Requests) -> BoolArray:
    return np.ones(len(requests), dtype=np.bool_)


def chat(seconds: float = 0.5, budget: float = 0.01) -> list[LatencyThreshold]:
    return [LatencyThreshold("chat", seconds, budget, everyone)]


def slow(before: float, now: float, number: int = 6_000, seed: int = 1) -> Requests:
    """Return requests; these shares of them wait for blocks for two seconds."""
    requests = quiet(number, seed)
    chance = np.random.default_rng(seed).random(number)
    late = requests.received_unix_ns >= 900 * S
    waits = np.where(chance < np.where(late, now, before), 2.0, 0.0)
    return summed(
        Requests(
            requests.received_unix_ns, {**requests.numbers, "queue_kv_s": waits}, requests.labels
        )
    )


def judged(requests: Requests, **objective: float) -> Explanation:
    return asked(requests, Metric.TTFT, thresholds=chat(**objective))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("before", "now"), [(0.003, 0.10), (0.05, 0.22), (0.5, 0.6)])
def test_attainment_that_fell_is_an_incident(before: float, now: float, seed: int) -> None:
    answer = judged(slow(before, now, seed=seed), seconds=1.0)
    assert answer.verdict is ExplanationVerdict.INCIDENT
    assert answer.attainments[0].fell
    assert answer.causes[0].id == "kv_cache_exhausted"


@pytest.mark.parametrize("seed", range(3))
def test_a_met_objective_is_no_incident_for_any_growth_of_the_tail(seed: int) -> None:
    requests = later(quiet(seed=seed), queue_kv_s=1.0)
    assert asked(requests).verdict is ExplanationVerdict.INCIDENT
    answer = judged(requests, seconds=5.0)
    assert answer.verdict is ExplanationVerdict.NO_INCIDENT
    assert not answer.causes


@pytest.mark.parametrize("seed", range(3))
def test_a_target_missed_as_often_as_before_is_no_new_incident(seed: int) -> None:
    answer = judged(slow(0.2, 0.2, seed=seed), seconds=1.0)
    assert answer.verdict is ExplanationVerdict.NO_INCIDENT
    assert answer.attainments[0].missed


def test_a_few_requests_more_are_chance() -> None:
    """Two slow requests of 300 may be chance even if none was slow before and the target is
    missed."""
    requests = slow(0.0, 0.0, number=600)
    waits = requests.numbers["queue_kv_s"].copy()
    waits[[400, 500]] = 2.0
    two = summed(
        Requests(
            requests.received_unix_ns, {**requests.numbers, "queue_kv_s": waits}, requests.labels
        )
    )
    answer = judged(two, seconds=1.0, budget=0.001)
    assert answer.attainments[0].missed
    assert answer.verdict is ExplanationVerdict.NO_INCIDENT


def test_bursts_of_the_baseline_count_for_less_than_their_requests() -> None:
    """Every fourth minute of the baseline is slow, so one more slow minute may be chance."""
    requests = quiet(3_000)
    minute = requests.received_unix_ns // (60 * S)
    bad = (minute % 4 == 0) | (minute == 29)
    waits = np.where(bad, 2.0, 0.0)
    bursts = summed(
        Requests(
            requests.received_unix_ns, {**requests.numbers, "queue_kv_s": waits}, requests.labels
        )
    )
    assert not judged(bursts, seconds=1.0).attainments[0].fell
    spread = slow(0.25, 0.32, number=3_000)
    assert judged(spread, seconds=1.0).attainments[0].fell


def test_a_threshold_that_usual_traffic_misses_is_ignored() -> None:
    requests = later(quiet(), queue_kv_s=0.5)
    answer = judged(requests, seconds=0.001)
    assert not answer.attainments[0].decides
    assert answer.verdict is ExplanationVerdict.INCIDENT


@pytest.mark.parametrize("metric", [Metric.TTFT, Metric.FIRST_CONTENT])
def test_an_abort_after_the_threshold_counts_as_slow(metric: Metric) -> None:
    """The request has no first token or no content, but counts as slow."""
    requests = quiet()
    late = requests.received_unix_ns >= 900 * S
    left = late & (np.random.default_rng(3).random(len(requests)) < 0.2)
    outcome = labels(np.where(left, "abort", "stop").tolist())
    numbers = {
        **requests.numbers,
        f"{metric.value}_s": np.where(left, np.nan, requests.numbers["ttft_s"]),
        "e2e_s": np.where(left, 3.0, requests.numbers["e2e_s"]),
    }
    gone = Requests(requests.received_unix_ns, numbers, {**requests.labels, "outcome": outcome})
    (one,) = asked(gone, metric, thresholds=chat(1.0)).attainments
    assert one.fell
    assert one.attained_ratio == pytest.approx(0.8, abs=0.02)


def test_only_those_asked_about_are_counted() -> None:
    requests = quiet()
    there = requests.label("replica").is_value("r1")
    queued = later(requests, queue_kv_s=np.where(there, 2.0, 0.0))
    for replica, fell in (("r0", False), ("r1", True)):
        answer = asked(queued, thresholds=chat(1.0), where={"replica": replica})
        assert answer.attainments[0].fell is fell
