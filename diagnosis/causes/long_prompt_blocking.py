"""Short requests wait for the prefill or the KV transfers of a few very long prompts."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.added_requests import long_prompts_fill_steps
from diagnosis.evidence.driving_tenant import tenant_evidence
from diagnosis.evidence.traffic_growth import few_prompts_share
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase

ID = "long_prompt_blocking"
SUMMARY = "short requests wait behind the prefill of a few very long prompts"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the wait before the first token that a few long prompts cause. If each of these prompts
    fits into one step, claim only the wait for the network link, which their KV transfers occupy.
    """
    of_few, several_steps = few_prompts_share(case), long_prompts_fill_steps(case)
    before = {
        name: share * of_few
        for name, share in wait_weights(case, drivers.PROMPTS).items()
        if name == "queue_held" or (several_steps and not name.startswith("decode_"))
    }
    if not before or not of_few:
        return None
    where, who, limit = tenant_evidence(case, "prompt_tokens")
    return Claim(
        cause=ID,
        weights=before,
        evidence=[
            *who,
            Evidence(
                "prompt tokens, 99th percentile",
                *case.quantiles("prompt_tokens", 0.99),
            ),
            Evidence("prompt tokens, median", *case.quantiles("prompt_tokens", 0.5)),
            Evidence(
                "most prompt tokens of other requests in one step, mean over the slow requests",
                *case.slow_means("others_prefill_tokens_max"),
            ),
        ],
        levers=[
            *limit,
            Lever("let short prompts overtake long ones", "--long-prefill-token-threshold 2048"),
            Lever("serve short prompts first", "--scheduling-policy priority"),
        ],
        where=where,
    )
