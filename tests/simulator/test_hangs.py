import random
from dataclasses import replace
from itertools import islice

import pytest

from simulator.conditions import ConditionChange, Restart
from simulator.dataset import Dataset, run
from simulator.faults import INJECTIONS, SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from telemetry.engines import HUNG_S
from telemetry.requests import Outcome

HANG = SimulatedFault(cause="engine_hang", start_s=20.0, severity=0.5)
FLEET = FleetConfig(workload=Workload(rate_per_s=8.0), duration_s=140.0, seed=5, faults=(HANG,))


@pytest.fixture(scope="module")
def data() -> Dataset:
    return run(FLEET)


def test_the_samples_show_the_requests_and_the_time_without_a_step(data: Dataset) -> None:
    (sample,) = [s for s in data.samples if s.replica == "sim-0" and s.at_unix_ns == 100 * 10**9]
    assert (sample.last_step_age_s or 0) == pytest.approx(80.0, abs=1.0)
    assert (sample.in_flight or 0) > 0
    assert (sample.running or 0) > 0
    other = [s for s in data.samples if s.replica == "sim-1" and s.last_step_age_s is not None]
    assert max(s.last_step_age_s or 0 for s in other) < HUNG_S


def test_requests_of_a_hung_engine_fail_at_the_restart(data: Dataset) -> None:
    cut = [row for row in data.requests if row.outcome is Outcome.ERROR]
    assert len(cut) > 5
    for row in cut:
        end_s = row.received_unix_ns / 1e9 + row.e2e_s
        assert end_s == pytest.approx(20.0 + 1.5 * HUNG_S, abs=0.01)
    assert {row.replica for row in cut} == {"sim-0"}
    assert {row.error_type for row in cut} == {"engine_silent"}


def test_no_request_of_a_hung_engine_ends_before_the_restart(data: Dataset) -> None:
    for row in data.requests:
        end_s = (row.received_unix_ns + row.e2e_s * 1e9) / 1e9
        if row.replica == "sim-0" and 21.0 < end_s < 109.0:
            assert row.outcome is Outcome.REJECTED


def test_a_hang_ends_before_the_simulation_does() -> None:
    late = replace(HANG, start_s=130.0, severity=2.0)
    ended = run(replace(FLEET, faults=(late,)))
    assert ended.requests[-1].received_unix_ns < 140 * 10**9


def test_a_fault_without_an_end_hangs_again() -> None:
    events = INJECTIONS["engine_hang"].events
    assert events is not None
    endless = replace(FLEET, duration_s=None)
    found = list(islice(events(HANG, endless, random.Random("x")), 6))
    assert [type(event) for event in found] == [ConditionChange, Restart, ConditionChange] * 2
    assert [event.at_s for event in found] == sorted(event.at_s for event in found)
