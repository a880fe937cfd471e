"""Short requests wait behind the prefill of a few very long prompts."""

from diagnosis.case import Case
from diagnosis.causes import blame
from diagnosis.causes.claim import Claim, Evidence, Lever
from diagnosis.causes.queueing import waiting
from diagnosis.causes.traffic_growth import driven_by, of_few_prompts

ID = "long_prompt_blocking"
SUMMARY = "short requests wait behind the prefill of a few very long prompts"


def detect(case: Case) -> Claim | None:
    """Claims the wait for prefill of others before the first token, as far as few make it up."""
    of_few = of_few_prompts(case)
    before = {
        name: share * of_few
        for name, share in waiting(case, blame.PROMPTS).items()
        if not name.startswith("decode_")
    }
    if not before or not of_few:
        return None
    where, who, limit = driven_by(case, "prompt_tokens")
    return Claim(
        cause=ID,
        weights=before,
        evidence=[
            *who,
            Evidence(
                "prompt tokens, longest of a hundred",
                *case.quantiles("prompt_tokens", 0.99),
            ),
            Evidence("prompt tokens, median", *case.quantiles("prompt_tokens", 0.5)),
            Evidence(
                "prompt tokens of others in one step, at most, mean over the slow requests",
                *case.of_usual_and_slow("others_prefill_tokens_max"),
            ),
        ],
        levers=[
            *limit,
            Lever("let short prompts pass long ones", "--long-prefill-token-threshold 2048"),
            Lever("serve the short ones first", "--scheduling-policy priority"),
        ],
        where=where,
    )
