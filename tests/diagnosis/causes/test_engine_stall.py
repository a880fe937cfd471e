from typing import Any

import numpy as np
import pytest

from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import S, asked, evidence, fleet, later, quiet, shares


def standing_still() -> Requests:
    """Return requests; one of ten in the window has a pause of ten seconds."""
    requests = quiet()
    meets = np.random.default_rng(6).random(len(requests)) < 0.1
    return later(requests, decode_stall_s=np.where(meets, 10.0, 0.0))


def engines_at_work(stall_per_s: Any, **now: Any) -> Servers:
    now = {"busy_s_total": 0.9, "stall_s_total": stall_per_s, "longest_step_s": 10.0, **now}
    usual = {"busy_s_total": 0.6, "stall_s_total": 0.0, "longest_step_s": 0.1}
    return fleet(now, usual)


def at_times(second: int) -> float:
    """Return requests; one of a hundred in the window has a pause of 2.5 s."""
    return 0.5 if second % 100 == 0 else 0.0


@pytest.mark.parametrize("metric", [Metric.TPOT, Metric.ITL_MAX])
def test_pauses_of_the_engine_are_a_stall(metric: Metric) -> None:
    answer = asked(standing_still(), metric, engines_at_work(at_times, preemptions_total=0.0))
    first = answer.causes[0]
    assert first.id == "engine_stall"
    assert first.share > 0.8
    assert evidence(first, "stall time of the engine") == pytest.approx((0.0, 0.025), abs=0.01)
    assert evidence(first, "longest step") == (0.1, 10.0)
    assert any("garbage collection" in lever.action for lever in first.levers)


def test_steps_that_are_all_slower_are_no_stall() -> None:
    """If every step is slower, the cause is the machine."""
    found = shares(asked(standing_still(), Metric.TPOT, engines_at_work(0.45)))
    assert "engine_stall" not in found


def test_a_small_surplus_in_every_second_hides_no_stall() -> None:
    """On a shared machine, every second has a small surplus."""
    servers = engines_at_work(lambda second: 0.45 if second % 50 == 0 else 0.05)
    assert shares(asked(standing_still(), Metric.TPOT, servers))["engine_stall"] > 0.8


def test_a_queue_during_a_stall_is_attributed_to_the_stall() -> None:
    requests = quiet()
    meets = requests.received_unix_ns // S % 100 >= 97
    queued = later(requests, queue_step_s=np.where(meets, 2.0, 0.0))
    assert shares(asked(queued, servers=engines_at_work(at_times)))["engine_stall"] > 0.8
    assert not asked(queued, servers=engines_at_work(0.0)).causes


@pytest.mark.parametrize("metric", [Metric.TTFT, Metric.E2E])
def test_waits_for_slots_of_stalled_requests_are_attributed_to_the_stall(metric: Metric) -> None:
    queued = later(quiet(), decode_stall_s=20.0, queue_seats_s=8.0)
    assert shares(asked(queued, metric))["engine_stall"] > 0.9


def test_a_stall_that_no_slow_request_saw_is_left_to_the_replay() -> None:
    """The stalls may have caused the backlog in which the slow requests wait."""
    queued = later(quiet(), queue_kv_s=1.0)
    others = [cause.id for cause in asked(queued, servers=engines_at_work(at_times)).others]
    assert "engine_stall" in others
    others = [cause.id for cause in asked(queued, servers=engines_at_work(0.0)).others]
    assert "engine_stall" not in others
