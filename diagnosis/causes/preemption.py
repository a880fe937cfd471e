"""Running requests lose their KV blocks to other requests and are computed again."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.levers import lever
from diagnosis.evidence.outgrown_blocks import outgrown
from diagnosis.evidence.waits import OF_BLOCKS, wait_weights
from diagnosis.growth.case import DiagnosisCase

ID = "preemption"
SUMMARY = "running requests lose their KV blocks to other requests and are computed again"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the time in which requests are evicted or computed again. Also claim the wait for
    slots in the batch.

    If longer outputs and fewer KV blocks together caused the preemptions, also claim two waits: for
    KV blocks, and for places that requests with longer outputs occupy.
    """
    seats = wait_weights(case, drivers.PREEMPTION)
    if outgrown(case):
        chosen = (drivers.PREEMPTION, drivers.OUTPUTS, drivers.BLOCKS)
        seats = wait_weights(case, *chosen)
    elif case.grown_s("prefill_preempted", "decode_preempted") <= 0:
        # The slow requests were not evicted, but they may wait for a slot in the batch that an
        # evicted request occupies. Their wait for KV blocks is not an effect of evictions: too
        # little memory causes both.
        seats = {term: share for term, share in seats.items() if term not in OF_BLOCKS}
        if not seats:
            return None
    outputs = []
    if outgrown(case):
        outputs = [Evidence("output tokens, median", *case.quantiles("output_tokens", 0.5))]
    return Claim(
        cause=ID,
        weights={**seats, "prefill_preempted": 1.0, "decode_preempted": 1.0},
        evidence=[
            Evidence("preemptions/s", *case.rate("preemptions_total")),
            *outputs,
            Evidence("KV cache in use, ratio", *case.mean("kv_usage_ratio")),
        ],
        levers=[
            lever(case, "run fewer sequences at a time", "--max-num-seqs", factor=0.5),
            Lever("store the KV cache in 8 bits", "--kv-cache-dtype fp8"),
            lever(case, "give the cache more memory", "--gpu-memory-utilization"),
        ],
        where=case.where,
    )
