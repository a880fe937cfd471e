from tailspan_vllm import names

from replay.engine_config import EngineConfig
from replay.step_clock import Stall
from simulator.replica import SimulatedReplica
from simulator.workload import SimulatedRequest


def gauges(replica: SimulatedReplica, at_s: float) -> dict[str, int | float]:
    replica.advance(at_s)
    state = replica.state(at_s)
    assert state is not None
    return state.gauges


def test_a_stalled_engine_reports_its_requests_and_the_time_since_a_step() -> None:
    stalls = [Stall(10.0, 90.0)]
    replica = SimulatedReplica("r", "here", "m", EngineConfig(), "1", lambda _: stalls)
    idle = gauges(replica, 9.0)
    assert (idle[names.IN_FLIGHT], idle[names.OLDEST_REQUEST_AGE]) == (0, 0)
    assert names.LAST_STEP_AGE not in idle
    replica.advance(9.5)
    replica.receive(SimulatedRequest(at_s=9.5, tenant="acme", prompt_tokens=100, output_tokens=200))
    working = gauges(replica, 9.6)
    assert working[names.IN_FLIGHT] == 1
    assert working[names.LAST_STEP_AGE] < 0.1
    hung = gauges(replica, 95.0)
    assert hung[names.IN_FLIGHT] == 1
    assert 85.4 < hung[names.OLDEST_REQUEST_AGE] < 85.6
    assert 84.0 < hung[names.LAST_STEP_AGE] <= 85.5
    after = gauges(replica, 200.0)
    assert after[names.IN_FLIGHT] == 0
    assert names.LAST_STEP_AGE not in after
