"""Prefills of other requests run in the same steps as decodes and lengthen these steps."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.added_requests import long_prompts_fill_steps
from diagnosis.evidence.driving_tenant import tenant_evidence
from diagnosis.evidence.levers import lever
from diagnosis.evidence.traffic_growth import few_prompts_share
from diagnosis.evidence.waits import prefill_share, wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.question import CONTAIN_TOKENS

ID = "prefill_interference"
SUMMARY = (
    "prefills of other requests share the steps of running decodes, so these steps take longer"
)


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the delay of decodes by the prefills of other requests, as far as longer prompts or
    more prompts cause it.

    If each long prompt fits into one step, also claim the wait before the first token. Otherwise,
    `long_prompt_blocking` claims this wait.
    """
    shares = drivers.for_prefill(case)
    of_prompts = shares.get(drivers.PROMPTS, 0.0)
    if case.question.metric in CONTAIN_TOKENS and case.workload.prompts_grew:
        of_prompts *= few_prompts_share(case)  # `longer_prompts` explains the growth of all prompts
    share = of_prompts + shares.get(drivers.LOAD, 0.0) * prefill_share(case)
    of_few = 0.0 if long_prompts_fill_steps(case) else few_prompts_share(case)
    weights = {
        name: weight * of_few
        for name, weight in wait_weights(case, drivers.PROMPTS).items()
        if of_few and not name.startswith("decode_") and name != "queue_held"
    }
    if case.grown_s("decode_others_prefill") > 0 and share:
        weights["decode_others_prefill"] = share
    if not weights:
        return None
    where, who, limit = tenant_evidence(case, "prompt_tokens")
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            *who,
            Evidence(
                "most prompt tokens of other requests in one step, mean over the slow requests",
                *case.slow_means("others_prefill_tokens_max"),
            ),
            Evidence(
                "prompt tokens, mean",
                case.demand.prompt_before_tokens,
                case.demand.prompt_now_tokens,
            ),
            Evidence("prompt tokens computed/s", *case.rate("prefill_tokens_total")),
        ],
        levers=[
            *limit,
            lever(case, "make steps smaller", "--max-num-batched-tokens", factor=0.25),
            Lever("give long prompts their own servers, or separate prefill from decode"),
        ],
        where=where,
    )
