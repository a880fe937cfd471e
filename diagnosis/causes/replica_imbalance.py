"""The router sends one replica more than its share, and only there requests wait."""

from diagnosis.case import Case
from diagnosis.causes import blame
from diagnosis.causes.claim import Claim, Evidence, Lever
from diagnosis.causes.queueing import waiting

ID = "replica_imbalance"
SUMMARY = "the router sends one replica more than its share, and only there requests wait"


def detect(case: Case) -> Claim | None:
    """Claims what the replica's growth beyond the fleet's is to blame for."""
    weights = waiting(case, blame.SKEW)
    if not weights or not case.victims:
        return None
    demand = case.demand
    before = demand.victims_before_per_s / max(demand.fleet_before_per_s, 1e-9)
    now = demand.victims_now_per_s / max(demand.fleet_now_per_s, 1e-9)
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            Evidence(f"share of the traffic that {', '.join(case.victims)} gets", before, now),
            Evidence("requests waiting there, mean", *case.mean("waiting")),
            Evidence("requests/s, all replicas", demand.fleet_before_per_s, demand.fleet_now_per_s),
        ],
        levers=[
            Lever("route by outstanding requests, or by cached prefix with a cap on the skew"),
        ],
        where={"replica": case.victims[0]},
    )
