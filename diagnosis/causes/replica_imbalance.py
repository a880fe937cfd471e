"""The router sends too many requests to one replica or engine, and they wait there."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase

ID = "replica_imbalance"
SUMMARY = "the router sends one replica or engine too many requests, and requests wait only there"


_BETWEEN_ENGINES = (
    Lever("let vLLM choose the engine: send no X-data-parallel-rank header"),
    Lever("give each engine a port, and route between them", "--data-parallel-external-lb"),
)
"""The actions (levers) for a replica whose engines get unequal traffic. vLLM chooses the engine,
unless the request names an engine."""


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the delay by the additional traffic of the slow servers. Only the part of their
    traffic's growth that exceeds the growth of the whole fleet is considered."""
    weights = wait_weights(case, drivers.SKEW)
    if not weights or not case.slow_servers:
        return None
    demand = case.demand
    before = demand.slow_servers_before_per_s / max(demand.fleet_before_per_s, 1e-9)
    now = demand.slow_servers_now_per_s / max(demand.fleet_now_per_s, 1e-9)
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            Evidence(f"share of the traffic that {', '.join(case.slow_servers)} gets", before, now),
            Evidence("requests waiting at the slow servers, mean", *case.mean("waiting")),
            Evidence("requests/s, all replicas", demand.fleet_before_per_s, demand.fleet_now_per_s),
        ],
        levers=[
            Lever("route by outstanding requests, or by cached prefix with a limit on the skew"),
            *(_BETWEEN_ENGINES if case.slow_servers[0] in case.servers.divided else ()),
        ],
        where=case.where_of(case.slow_servers[0]),
    )
