"""The router sends more than its share to one replica, and requests wait only there."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import Case

ID = "replica_imbalance"
SUMMARY = "the router sends more than its share to one replica, and requests wait only there"


def detect(case: Case) -> Claim | None:
    """Return a claim on the delay that a replica's additional traffic causes. Only growth beyond
    the fleet's growth counts."""
    weights = wait_weights(case, drivers.SKEW)
    if not weights or not case.slow_replicas:
        return None
    demand = case.demand
    before = demand.slow_replicas_before_per_s / max(demand.fleet_before_per_s, 1e-9)
    now = demand.slow_replicas_now_per_s / max(demand.fleet_now_per_s, 1e-9)
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            Evidence(
                f"share of the traffic that {', '.join(case.slow_replicas)} gets", before, now
            ),
            Evidence("requests waiting there, mean", *case.mean("waiting")),
            Evidence("requests/s, all replicas", demand.fleet_before_per_s, demand.fleet_now_per_s),
        ],
        levers=[
            Lever("route by outstanding requests, or by cached prefix with a limit on the skew"),
        ],
        where={"replica": case.slow_replicas[0]},
    )
