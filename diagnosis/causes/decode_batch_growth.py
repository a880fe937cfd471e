"""More sequences, or longer ones, decode in the same steps: each token takes longer."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.levers import lever
from diagnosis.evidence.traffic_growth import tenant_evidence
from diagnosis.evidence.waits import prefill_share
from diagnosis.growth.case import Case
from diagnosis.question import Metric

ID = "decode_batch_growth"
SUMMARY = "more sequences, or longer ones, decode in the same steps: each token takes longer"


def detect(case: Case) -> Claim | None:
    """Claim the time that others' decodes add to a step."""
    shares = drivers.for_seats(case)
    chosen = [drivers.LOAD, drivers.PROMPTS, drivers.OUTPUTS]
    if case.question.metric is Metric.E2E and case.workload.outputs_grew:
        chosen.remove(drivers.OUTPUTS)  # for E2E, longer answers are the root cause
    # If nothing else grew, more tokens of others in a step are the batch's own growth.
    share = sum(shares.get(driver, 0.0) for driver in chosen) if shares else 1.0
    if case.grown_s("prefill_others_decode", "decode_others_decode") <= 0 or not share:
        return None
    # More concurrent requests also bring their prefills into the decodes' steps. As long as these
    # are the smaller part, they count as growth of the batch.
    prefills = drivers.for_prefill(case).get(drivers.LOAD, 0.0) * (1.0 - prefill_share(case))
    where, who, limit = tenant_evidence(case, "output_tokens")
    return Claim(
        cause=ID,
        weights={
            "prefill_others_decode": share,
            "decode_others_decode": share,
            "decode_others_prefill": prefills,
        },
        evidence=[
            *who,
            Evidence("requests running, mean", *case.mean("running")),
            Evidence("tokens decoded/s", *case.rate("decode_tokens_total")),
            Evidence("KV cache in use, ratio", *case.mean("kv_usage_ratio")),
        ],
        levers=[
            *limit,
            Lever("add replicas"),
            lever(case, "cap the batch", "--max-num-seqs", factor=0.5),
        ],
        where=where,
    )
