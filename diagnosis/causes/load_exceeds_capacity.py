"""The load exceeds the servers' capacity, so requests of every size wait in the queue."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.levers import lever
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase

ID = "load_exceeds_capacity"
SUMMARY = "the load exceeds the servers' capacity: requests of every size wait in the queue"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the time in the queue that the growth of the request rate causes."""
    weights = {
        term: share
        for term, share in wait_weights(case, drivers.LOAD).items()
        if not term.startswith("decode_")  # `decode_batch_growth` explains these terms
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
            Lever(
                "add replicas, or route traffic elsewhere",
                change=f"replicas={len(case.now.label('replica').present) + 1}",
            ),
            lever(case, "allow more sequences in the batch", "--max-num-seqs", factor=2.0),
            Lever("reject requests that cannot be served in time", "--max-num-queued-reqs"),
        ],
    )
