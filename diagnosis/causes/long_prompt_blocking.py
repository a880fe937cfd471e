"""Short requests wait behind the prefill of a few very long prompts."""

from diagnosis.case import Case
from diagnosis.causes import blame
from diagnosis.causes.claim import Claim, Evidence, Lever

ID = "long_prompt_blocking"


def detect(case: Case) -> Claim | None:
    """Claims the wait for others' prefill before the first token, if few prompts make it up."""
    prompts = blame.for_prefill(case).get(blame.PROMPTS, 0.0)
    if not prompts or not blame.few_long_prompts(case):
        return None
    weights = {"queue_budget": prompts, "queue_step": prompts, "prefill_others_prefill": prompts}
    weights |= {
        term: blame.for_seats(case).get(blame.PROMPTS, 0.0)
        for term in ("queue_seats", "queue_unsplit")
    }
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
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
            Lever("let short prompts pass long ones", "--long-prefill-token-threshold 2048"),
            Lever("serve the short ones first", "--scheduling-policy priority"),
        ],
    )
