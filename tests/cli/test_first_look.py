from alerts.evaluation.request_verdicts import RequestVerdict, judge
from alerts.objectives import Goodput
from alerts.openslo.reader import OBJECTIVES, load
from server.supervised_children import FIRST_LOOK
from simulator import dataset
from simulator.fault import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from telemetry.durations import parse_s
from ui.frame.view import DEFAULT_RANGE, RANGES_S

BEFORE_S, FLOOD_S = 120, 240


def test_the_simulated_incident_is_one_that_pages() -> None:
    """The past is shorter than the alert's window of an hour; the missing time counts as good."""
    (objective,) = load([OBJECTIVES]).objectives
    assert isinstance(objective.indicator, Goodput)
    fault = SimulatedFault(cause=FIRST_LOOK["incident"], start_s=BEFORE_S)
    world = FleetConfig(
        replicas=2,
        workload=Workload(rate_per_s=2 * float(FIRST_LOOK["rate"])),
        faults=(fault,),
        duration_s=BEFORE_S + FLOOD_S,
    )
    found = dataset.run(world).requests
    began_ns = world.started_unix_ns + BEFORE_S * 10**9
    good = objective.indicator.good
    verdicts = [(row.received_unix_ns >= began_ns, judge(good, row)) for row in found]
    past_s, lasts_s = parse_s(FIRST_LOOK["backfill"]), parse_s(FIRST_LOOK["incident-before"])
    quiet = sum(not late for late, _ in verdicts) * (past_s - lasts_s) / BEFORE_S
    late = sum(late for late, _ in verdicts) * lasts_s / FLOOD_S
    bad = (
        sum(late and verdict is RequestVerdict.BAD for late, verdict in verdicts)
        * lasts_s
        / FLOOD_S
    )
    first = objective.policy.pairs[0]
    covered = past_s / first.long_s
    burn = bad / (quiet + late) * covered / float(1 - objective.target)
    assert burn > 1.2 * first.factor


def test_the_range_before_the_incident_is_one_to_compare_with() -> None:
    """The baseline must be as long as the explorer's default range of 15 min."""
    quiet_s = parse_s(FIRST_LOOK["backfill"]) - parse_s(FIRST_LOOK["incident-before"])
    assert quiet_s >= RANGES_S[DEFAULT_RANGE]
