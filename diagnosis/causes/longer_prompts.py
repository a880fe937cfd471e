"""The prompts themselves became longer: the servers do as before, with more to do."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.traffic_growth import few_prompts_share
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import Case
from diagnosis.inputs.requests import FloatArray

ID = "longer_prompts"
SUMMARY = "the prompts themselves became longer: the servers do as before, with more to do"


def detect(case: Case) -> Claim | None:
    """Claims own prefill of more tokens; as far as all prompts grew, what they cost each other
    too."""
    if not case.workload.prompts_grew:
        return None  # the slow ones happen to be longer than the baseline's slow ones
    weights: dict[str, float | FloatArray] = {"prefill_longer": 1.0}
    of_all = 1.0 - few_prompts_share(case)
    if of_all:
        # The decodes that they stretch are prefill_interference's.
        weights |= {
            name: share * of_all
            for name, share in wait_weights(case, drivers.PROMPTS).items()
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
                *case.slow_means("prompt_tokens"),
            ),
        ],
        levers=[
            Lever("an objective and servers of their own for long prompts"),
            Lever("shorter prompts: fewer retrieved passages, a summary of the conversation"),
        ],
    )
