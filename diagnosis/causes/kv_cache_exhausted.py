"""The KV cache is full: requests wait for blocks although the batch has free slots."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.levers import lever
from diagnosis.evidence.outgrown_blocks import outgrown
from diagnosis.growth.case import DiagnosisCase

ID = "kv_cache_exhausted"
SUMMARY = "the KV cache is full: requests wait for blocks although the batch has free slots"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the wait for KV blocks. If longer outputs and a smaller cache together caused
    preemptions, the detector `preemption` claims this wait instead."""
    if case.grown_s("queue_kv") <= 0 or outgrown(case):
        return None
    own = drivers.for_blocks(case)[drivers.BLOCKS]
    return Claim(
        cause=ID,
        weights={"queue_kv": own},
        evidence=[
            Evidence("KV cache in use, ratio", *case.mean("kv_usage_ratio")),
            Evidence("requests running, mean", *case.mean("running")),
            Evidence("requests waiting, mean", *case.mean("waiting")),
        ],
        levers=[
            Lever("store the KV cache in 8 bits", "--kv-cache-dtype fp8"),
            lever(case, "give the cache more memory", "--gpu-memory-utilization"),
            lever(case, "cap the length of a request", "--max-model-len", factor=0.5),
        ],
        where=case.where,
    )
