"""More requests than the servers have places for: a queue for every size of request."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.levers import lever
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import Case

ID = "load_exceeds_capacity"
SUMMARY = "more requests than the servers have places for: a queue for every size of request"


def detect(case: Case) -> Claim | None:
    """Claims the queue that the rate's growth is to blame for."""
    weights = {
        term: share
        for term, share in wait_weights(case, drivers.LOAD).items()
        if not term.startswith("decode_")  # that is decode_batch_growth's
    }
    if not weights:
        return None
    demand = case.demand
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            Evidence("requests/s, all replicas", demand.fleet_before_per_s, demand.fleet_now_per_s),
            Evidence("requests waiting, mean", *case.mean("waiting")),
            Evidence("requests running, mean", *case.mean("running")),
            Evidence("KV cache in use, ratio", *case.mean("kv_usage_ratio")),
        ],
        levers=[
            Lever("add replicas, or send less here"),
            lever(case, "more places in the batch", "--max-num-seqs", factor=2.0),
            Lever("refuse early what cannot be served in time", "--max-num-queued-reqs"),
        ],
    )
