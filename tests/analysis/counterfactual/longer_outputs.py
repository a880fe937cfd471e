"""A simulated fleet whose outputs become longer, and the question about it."""

from diagnosis.question import Metric, Question, Span
from simulator.fault import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload

BEGAN_S, ENDED_S = 150.0, 270.0
CONFIG = FleetConfig(
    duration_s=ENDED_S,
    seed=5,
    replicas=1,
    workload=Workload(rate_per_s=6.0),
    faults=(SimulatedFault(cause="longer_outputs", start_s=BEGAN_S),),
)


def question(metric: Metric = Metric.E2E, **where: str) -> Question:
    def at(seconds: float) -> int:
        return CONFIG.started_unix_ns + round(seconds * 1e9)

    return Question(metric, Span(at(BEGAN_S), at(ENDED_S)), Span(at(30), at(BEGAN_S)), where)
