"""The KV cache is full: requests wait for blocks although the batch has places."""

from diagnosis.case import Case
from diagnosis.causes import blame
from diagnosis.causes.claim import Claim, Evidence, Lever
from diagnosis.causes.levers import lever

ID = "kv_cache_exhausted"
SUMMARY = "the KV cache is full: requests wait for blocks although the batch has places"


def detect(case: Case) -> Claim | None:
    """Claims the queue for blocks."""
    if case.grown_s("queue_kv") <= 0:
        return None
    own = blame.for_blocks(case)[blame.BLOCKS]
    return Claim(
        cause=ID,
        weights={"queue_kv": own},
        evidence=[
            Evidence("KV cache in use, ratio", *case.mean("kv_usage_ratio")),
            Evidence("requests running, mean", *case.mean("running")),
            Evidence("requests waiting, mean", *case.mean("waiting")),
        ],
        levers=[
            Lever("store keys and values in 8 bits", "--kv-cache-dtype fp8"),
            lever(case, "leave more memory to the cache", "--gpu-memory-utilization"),
            lever(case, "cap how long a request may grow", "--max-model-len", factor=0.5),
        ],
    )
