"""The prompts themselves became longer: the servers do as before, with more to do."""

from diagnosis.case import Case
from diagnosis.causes import blame
from diagnosis.causes.claim import Claim, Evidence, Lever
from diagnosis.causes.queueing import waiting
from diagnosis.causes.traffic_growth import of_few_prompts
from diagnosis.requests import FloatArray

ID = "longer_prompts"
SUMMARY = "the prompts themselves became longer: the servers do as before, with more to do"


def detect(case: Case) -> Claim | None:
    """Claims own prefill of more tokens; as far as all prompts grew, what they cost each other
    too."""
    if not case.workload.prompts_grew:
        return None  # the slow ones happen to be longer than the baseline's slow ones
    weights: dict[str, float | FloatArray] = {"prefill_longer": 1.0}
    of_all = 1.0 - of_few_prompts(case)
    if of_all:
        # The decodes that they stretch are prefill_interference's.
        weights |= {
            name: share * of_all
            for name, share in waiting(case, blame.PROMPTS).items()
            if not name.startswith("decode_")
        }
    if len(weights) == 1 and case.grown_s("prefill_longer") <= 0:
        return None
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            Evidence("prompt tokens, median", *case.quantiles("prompt_tokens", 0.5)),
            Evidence("prompt tokens, longest of a hundred", *case.quantiles("prompt_tokens", 0.99)),
            Evidence(
                "prompt tokens, mean over the slow requests",
                *case.of_usual_and_slow("prompt_tokens"),
            ),
        ],
        levers=[
            Lever("an objective and servers of their own for long prompts"),
            Lever("shorter prompts: fewer retrieved passages, a summary of the conversation"),
        ],
    )
