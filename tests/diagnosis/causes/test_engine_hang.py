from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    WINDOW,
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
)

BEGIN_S = 1_500
"""From this second to the end of the window, one replica takes no step."""


def unfinished(outcome: str = "abort") -> Requests:
    """Return requests of the hung replica that wait until the end of the window."""
    requests = quiet()
    hung = at_replica(requests, "r0") & (requests.received_unix_ns >= BEGIN_S * S)
    numbers = dict(requests.numbers)
    for name in numbers:
        if name.endswith("_s"):
            numbers[name] = np.where(hung, np.nan, numbers[name])
    age_s = (WINDOW.to_unix_ns - requests.received_unix_ns) / 1e9
    numbers["e2e_s"] = np.where(hung, age_s, numbers["e2e_s"])
    outcomes = labels(np.where(hung, outcome, "stop").tolist())
    return replace(requests, numbers=numbers, labels={**requests.labels, "outcome": outcomes})


def standing_still(replica: str = "r0") -> Servers:
    now = {
        "in_flight": 40,
        "running": 12,
        "last_step_age_s": lambda second: max(0.02, float(second - BEGIN_S)),
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
    """The engine continued, so its requests got responses."""
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
