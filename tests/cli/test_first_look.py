"""What `tailspan up --simulate` shows to who sees it for the first time."""

from alerts.judging import Verdict, judge
from alerts.objectives import Goodput
from alerts.openslo import OBJECTIVES, load
from server.kept_children import FIRST_LOOK
from simulator import dataset
from simulator.fault import Fault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from telemetry.durations import parse_s

BEFORE_S, FLOOD_S = 120, 240
HOUR_S = 3_600


def test_the_simulated_incident_is_one_that_pages() -> None:
    """Somebody on call would be woken: a look at what Tailspan does when nothing is wrong tells
    nothing. Reckoned for an hour of which the incident has the end."""
    (objective,) = load([OBJECTIVES]).objectives
    assert isinstance(objective.indicator, Goodput)
    fault = Fault(cause=FIRST_LOOK["incident"], start_s=BEFORE_S)
    world = FleetConfig(
        replicas=2,
        workload=Workload(rate_per_s=10.0),
        faults=(fault,),
        duration_s=BEFORE_S + FLOOD_S,
    )
    found = dataset.run(world).requests
    began_ns = world.started_unix_ns + BEFORE_S * 10**9
    good = objective.indicator.good
    verdicts = [(row.received_unix_ns >= began_ns, judge(good, row)) for row in found]
    lasts_s = parse_s(FIRST_LOOK["incident-before"])
    quiet = sum(not late for late, _ in verdicts) * (HOUR_S - lasts_s) / BEFORE_S
    late = sum(late for late, _ in verdicts) * lasts_s / FLOOD_S
    bad = sum(late and verdict is Verdict.BAD for late, verdict in verdicts) * lasts_s / FLOOD_S
    burn = bad / (quiet + late) / float(1 - objective.target)
    highest = max(pair.factor for pair in objective.policy.pairs)
    assert burn > 1.2 * highest
