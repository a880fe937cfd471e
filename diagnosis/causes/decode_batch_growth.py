"""More sequences, or longer sequences, decode in the same steps, so each token takes longer."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.added_requests import outputs_were_added
from diagnosis.evidence.driving_tenant import tenant_evidence
from diagnosis.evidence.levers import lever
from diagnosis.evidence.waits import prefill_share, wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.requests import FloatArray
from diagnosis.question import CONTAIN_TOKENS

ID = "decode_batch_growth"
SUMMARY = "more sequences, or longer ones, decode in the same steps: each token takes longer"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the step time that the decodes of other requests add."""
    shares = drivers.for_seats(case)
    chosen = [drivers.LOAD, drivers.PROMPTS, drivers.OUTPUTS]
    added = outputs_were_added(case)
    if case.question.metric in CONTAIN_TOKENS and case.workload.outputs_grew and not added:
        chosen.remove(drivers.OUTPUTS)  # the detector `longer_outputs` explains this growth
    # If no driver was found (a change that raised the demand), the fuller batch explains the whole
    # delay by other requests' decodes.
    share = sum(shares.get(driver, 0.0) for driver in chosen) if shares else 1.0
    weights: dict[str, float | FloatArray] = {}
    if added:
        weights = {**wait_weights(case, drivers.OUTPUTS), "decode_longer": 1.0}
    if case.grown_s("prefill_others_decode", "decode_others_decode") > 0 and share:
        # More concurrent requests also add prefills to the steps of running decodes, and so delay
        # these decodes. A part of the delay counts as prefill interference (see `prefill_share`).
        # The fuller batch explains the rest of the delay.
        prefills = drivers.for_prefill(case).get(drivers.LOAD, 0.0) * (1.0 - prefill_share(case))
        weights |= {
            "prefill_others_decode": share,
            "decode_others_decode": share,
            "decode_others_prefill": prefills,
        }
    if not weights:
        return None
    where, who, limit = tenant_evidence(case, "output_tokens")
    return Claim(
        cause=ID,
        weights=weights,
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
