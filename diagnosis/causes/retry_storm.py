"""Clients give up after a timeout and send the same prompts again immediately."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.retries import retries, retries_share
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase

ID = "retry_storm"
SUMMARY = "clients give up after a timeout and immediately send the same prompts again"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the delay that repeated requests cause."""
    if not retries_share(case):
        return None
    weights = wait_weights(case, drivers.RETRIES)
    if not weights:
        return None
    before, now = retries(case)
    demand = case.demand
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            Evidence("share of requests that repeat an aborted request", before.share, now.share),
            Evidence(
                "age at which repeated requests were aborted, median, s", before.age_s, now.age_s
            ),
            Evidence(
                "share of repeated requests aborted at about the median age",
                before.same_age,
                now.same_age,
            ),
            Evidence("requests/s", demand.fleet_before_per_s, demand.fleet_now_per_s),
            Evidence(
                "requests/s without repeated requests",
                demand.fleet_before_per_s - before.per_s,
                demand.fleet_now_per_s - now.per_s,
            ),
        ],
        levers=[
            Lever("set a longer timeout in the clients"),
            Lever("let clients wait before a retry, longer after each one, with random jitter"),
            Lever("limit retries to a small share of the requests (a retry budget)"),
        ],
        where={} if now.tenant is None else {"tenant": now.tenant},
    )
