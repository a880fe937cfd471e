"""The slowdown factors of requests' own prefill and own decode."""

from collections.abc import Callable

import pytest

from diagnosis.growth.case import DiagnosisCase, case_of
from diagnosis.growth.own_work import fit_own_work
from diagnosis.inputs.requests import FloatArray, Requests
from diagnosis.inputs.servers import Servers
from diagnosis.latency.tail import sort_latencies
from diagnosis.question import Metric, Question
from tests.diagnosis.making import BASELINE, WINDOW, later, quiet, working


def case(requests: Requests) -> DiagnosisCase:
    now, before = (
        requests.within(span.from_unix_ns, span.to_unix_ns) for span in (WINDOW, BASELINE)
    )
    slow, usual = (
        sort_latencies(each.number("e2e_s"), each.received_unix_ns, span.from_unix_ns, 900.0)
        for each, span in ((now, WINDOW), (before, BASELINE))
    )
    question = Question(Metric.E2E, WINDOW, BASELINE)
    return case_of(question, Servers(), now, before, (slow, usual), 0.05, fit_own_work(before))


def slower(times: float) -> Callable[[FloatArray], FloatArray]:
    return lambda old: old * times


def test_the_smaller_factor_is_the_machines() -> None:
    found = case(later(quiet(), prefill_own_s=slower(1.5), decode_own_s=slower(2.0)))
    assert found.slowdowns == pytest.approx((1.5, 2.0), rel=0.05)
    assert found.machine_slowdown == pytest.approx(1.5, rel=0.05)


def test_decodes_are_compared_if_no_prefill_has_a_size_of_the_baseline() -> None:
    cached = later(quiet(), cached_tokens=quiet().numbers["prompt_tokens"])
    found = case(later(cached, decode_own_s=slower(2.0)))
    prefill, decode = found.slowdowns
    assert prefill is None
    assert decode == pytest.approx(2.0, rel=0.05)
    assert found.machine_slowdown == decode


def test_a_slower_prefill_alone_does_not_show_a_slower_machine() -> None:
    found = case(later(working(quiet(), outputs=1e3), prefill_own_s=slower(2.0)))
    prefill, decode = found.slowdowns
    assert prefill == pytest.approx(2.0, rel=0.05)
    assert decode is None
    assert found.machine_slowdown is None
