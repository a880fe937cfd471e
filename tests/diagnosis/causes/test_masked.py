"""Causes of requests that are slow, but not among the slowest."""

import numpy as np
import pytest

from diagnosis.explanation import ExplanationVerdict
from diagnosis.inputs.requests import Requests
from diagnosis.question import Metric
from tests.diagnosis.making import WINDOW, S, asked, later, quiet, shares

FEW, MANY = 0.03, 0.2


def delayed(evicted_s: float, stalled_s: float, apart: bool = True) -> Requests:
    """Delay some requests by evictions, and the same or other requests by a stall."""
    requests = quiet()
    chance = np.random.default_rng(8).random(len(requests))
    stalled = (chance > 1 - MANY) if apart else (chance < FEW)
    return later(
        requests,
        decode_preempted_s=np.where(chance < FEW, evicted_s, 0.0),
        decode_stall_s=np.where(stalled, stalled_s, 0.0),
    )


def test_a_cause_whose_requests_are_not_among_the_slowest_is_named() -> None:
    found = asked(delayed(evicted_s=60.0, stalled_s=30.0), Metric.E2E)
    (first, second) = found.causes
    assert (first.id, second.id) == ("preemption", "engine_stall")
    # Alone, the stall would add 30 s. With evictions of 60 s, it adds 0. The mean of both is 15 s,
    # a quarter of 60 s.
    assert second.share == pytest.approx(0.25, abs=0.05)
    assert first.share == pytest.approx(0.75, abs=0.05)
    shown = second.evidence[0]
    assert "alone" in shown.what
    assert (shown.now or 0.0) - (shown.baseline or 0.0) == pytest.approx(30.0, rel=0.25)
    assert found.unexplained == pytest.approx(0.0, abs=0.02)


def test_a_cause_among_the_slowest_is_not_hidden() -> None:
    found = asked(delayed(evicted_s=60.0, stalled_s=30.0, apart=False), Metric.E2E)
    assert shares(found) == {
        "preemption": pytest.approx(2 / 3, abs=0.05),
        "engine_stall": pytest.approx(1 / 3, abs=0.05),
    }
    assert not any("alone" in shown.what for cause in found.causes for shown in cause.evidence)


@pytest.mark.parametrize("stalled_s", [0.0, 3.0])
def test_a_cause_too_small_to_notice_is_not_named(stalled_s: float) -> None:
    found = asked(delayed(evicted_s=60.0, stalled_s=stalled_s), Metric.E2E)
    assert set(shares(found)) == {"preemption"}


def test_a_bad_minute_is_an_incident() -> None:
    """Many resamples omit the bad minute, but its requests exceed OUTLIER_RATIO."""
    requests = quiet()
    since = (requests.received_unix_ns - WINDOW.from_unix_ns) / S
    met = (since > 300) & (since < 330)
    found = asked(later(requests, prefill_stall_s=np.where(met, 4.0, 0.0)), Metric.TTFT)
    assert found.verdict is ExplanationVerdict.INCIDENT
    assert found.causes[0].id == "engine_stall"


def test_a_single_bad_second_is_not_an_incident() -> None:
    requests = quiet()
    since = (requests.received_unix_ns - WINDOW.from_unix_ns) / S
    met = (since > 300) & (since < 302)
    found = asked(later(requests, prefill_stall_s=np.where(met, 4.0, 0.0)), Metric.TTFT)
    assert found.verdict is ExplanationVerdict.NO_INCIDENT
