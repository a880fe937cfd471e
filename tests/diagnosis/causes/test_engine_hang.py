from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    S,
    asked,
    at_replica,
    evidence,
    first_cause,
    fleet,
    labels,
    later,
    quiet,
    shares,
    started,
)

BEGIN_S = 1_500
"""The second at which one replica stops; it takes no step until the window's end."""


def unfinished(outcome: str = "abort", of: Requests | None = None, until_s: int = 1800) -> Requests:
    """Return requests; those of the hung replica end when the hang ends."""
    requests = of or quiet()
    received = requests.received_unix_ns
    hung = at_replica(requests, "r0") & (received >= BEGIN_S * S) & (received < until_s * S)
    numbers = dict(requests.numbers)
    for name in numbers:
        if name.endswith("_s"):
            numbers[name] = np.where(hung, np.nan, numbers[name])
    age_s = (until_s * S - received) / 1e9
    numbers["e2e_s"] = np.where(hung, age_s, numbers["e2e_s"])
    outcomes = labels(np.where(hung, outcome, "stop").tolist())
    return replace(requests, numbers=numbers, labels={**requests.labels, "outcome": outcomes})


def standing_still(replica: str = "r0", until_s: int = 1800) -> Servers:
    now = {
        "in_flight": 40,
        "running": 12,
        "last_step_age_s": lambda second: (
            max(0.02, float(second - BEGIN_S)) if second <= until_s else 0.02
        ),
    }
    servers = fleet(now, {"in_flight": 4, "running": 4, "last_step_age_s": 0.02})
    other = ~servers.engines.replica.is_value(replica)
    age_s = np.where(other, 0.02, servers.engines.number("last_step_age_s"))
    numbers = {**servers.engines.numbers, "last_step_age_s": age_s}
    return replace(servers, engines=replace(servers.engines, numbers=numbers))


@pytest.mark.parametrize("metric", [Metric.TTFT, Metric.E2E])
@pytest.mark.parametrize("outcome", ["abort", "error"])
def test_requests_that_a_hung_engine_does_not_end(metric: Metric, outcome: str) -> None:
    answer = asked(unfinished(outcome), metric, standing_still())
    first = first_cause(answer, "engine_hang", 0.95)
    assert first.where == {"replica": "r0"}
    before, now = evidence(first, "longest time without")
    assert before == pytest.approx(0.02)
    assert 200 < (now or 0) < 300
    assert evidence(first, "requests in flight") == (4, 40)
    assert evidence(first, "share of slow requests that did not end") == (0.0, 1.0)
    assert "core dump" in first.levers[0].action


def test_requests_that_end_late_are_a_stall() -> None:
    """The engine continued after the stop, so its requests got responses."""
    requests = quiet()
    late = at_replica(requests, "r0") & (requests.received_unix_ns >= BEGIN_S * S)
    found = shares(
        asked(later(requests, prefill_stall_s=np.where(late, 70.0, 0.0)), servers=standing_still())
    )
    assert next(iter(found)) == "engine_stall"
    assert "engine_hang" not in found


def test_aborted_requests_of_an_engine_that_takes_steps_are_no_hang() -> None:
    found = asked(unfinished(), servers=fleet({"last_step_age_s": 0.02}, {"in_flight": 4}))
    assert "engine_hang" not in shares(found)


def test_a_hang_of_another_replica_is_not_a_cause() -> None:
    assert "engine_hang" not in shares(asked(unfinished(), servers=standing_still("r1")))


def evicted(evicted_s: float) -> Requests:
    """Return requests. In the window, a fifth of them are delayed by evictions."""
    requests = quiet()
    chance = np.random.default_rng(8).random(len(requests))
    return later(requests, decode_preempted_s=np.where(chance < 0.2, evicted_s, 0.0))


def test_a_cause_that_delays_the_requests_that_ended_is_named_beside_a_hang() -> None:
    answer = asked(unfinished(of=evicted(20.0)), Metric.E2E, standing_still())
    assert [cause.id for cause in answer.causes] == ["engine_hang", "preemption"]
    # The evictions alone would add 20 s. With the hang, which adds about 290 s, they add nothing.
    grown_s = answer.excess_s or 0.0
    assert answer.causes[1].share == pytest.approx(20.0 / grown_s / 2, abs=0.01)
    assert sum(cause.share for cause in answer.causes) == pytest.approx(1.0, abs=0.02)
    before, now = evidence(answer.causes[1], "slowest requests that ended")
    assert (now or 0.0) - (before or 0.0) == pytest.approx(20.0, rel=0.25)


def test_a_growth_too_small_to_be_an_incident_is_not_named_beside_a_hang() -> None:
    found = shares(asked(unfinished(of=evicted(0.3)), Metric.E2E, standing_still()))
    assert list(found) == ["engine_hang"]


def queued_after_restart(restart_s: int) -> Requests:
    """Return requests that wait for a slot at r0 for 20 s after a restart."""
    requests = quiet()
    since_s = requests.received_unix_ns / S - restart_s
    waits = at_replica(requests, "r0") & (since_s > 0) & (since_s < 20)
    return later(requests, queue_seats_s=np.where(waits, 60.0, 0.0))


def test_the_queue_after_the_restart_that_ends_a_hang_belongs_to_the_hang() -> None:
    requests = unfinished("error", queued_after_restart(1_620), until_s=1_610)
    servers = standing_still(until_s=1_610)
    restarted = replace(servers, starts=[started(0.0), started(1_620)])
    answer = asked(requests, servers=restarted)
    assert list(shares(answer)) == ["engine_hang"]
    assert answer.causes[0].share == pytest.approx(1.0, abs=0.05)


def test_a_restart_without_a_hang_is_named_beside_the_hang() -> None:
    requests = unfinished("error", queued_after_restart(1_200), until_s=1_610)
    servers = standing_still(until_s=1_610)
    restarted = replace(servers, starts=[started(0.0), started(1_200), started(1_620)])
    found = shares(asked(requests, servers=restarted))
    assert list(found) == ["engine_hang", "cold_start"]


def served_by_the_other_replica() -> Requests:
    """Return requests that all go to r1 from `BEGIN_S` + 10 s on, and wait for a slot there."""
    requests = quiet()
    replica = requests.label("replica")
    moved = requests.received_unix_ns >= (BEGIN_S + 10) * S
    names = np.where(moved, "r1", np.array(replica.values)[replica.codes])
    rerouted = replace(requests, labels={**requests.labels, "replica": labels(names.tolist())})
    return later(rerouted, queue_seats_s=np.where(moved, 20.0, 0.0))


def test_the_load_of_the_other_replicas_belongs_to_the_hang() -> None:
    waiting = served_by_the_other_replica()
    found = asked(unfinished(of=waiting), Metric.QUEUE, standing_still())
    assert next(iter(shares(found))) == "engine_hang"
    assert found.causes[0].where == {"replica": "r0"}
    assert "replica_imbalance" not in shares(found)


def test_the_load_of_the_other_replicas_during_a_stall_is_no_hang() -> None:
    """r0 continued after the stall, and answered its requests."""
    found = shares(asked(served_by_the_other_replica(), Metric.QUEUE, standing_still()))
    assert found
    assert "engine_hang" not in found
