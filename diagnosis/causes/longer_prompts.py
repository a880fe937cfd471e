"""The prompts became longer. The servers are as fast as before but have more to compute."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.traffic_growth import few_prompts_share
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.requests import FloatArray
from diagnosis.question import CONTAIN_TOKENS

ID = "longer_prompts"
SUMMARY = "the prompts became longer: the servers are as fast as before but have more to compute"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the prefill time of the additional tokens. If all prompts became longer, also claim the
    time by which the prefills delay other requests."""
    if not case.workload.prompts_grew:
        return None  # prompts of all requests are as long as before, on average
    weights: dict[str, float | FloatArray] = {"prefill_longer": 1.0}
    of_all = 1.0 - few_prompts_share(case)
    if of_all:
        # For the time per token, the detector `prefill_interference` explains the delay of decodes.
        weights |= {
            name: share * of_all
            for name, share in wait_weights(case, drivers.PROMPTS).items()
            if case.question.metric in CONTAIN_TOKENS or not name.startswith("decode_")
        }
    if len(weights) == 1 and case.grown_s("prefill_longer") <= 0:
        return None
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            Evidence("prompt tokens, median", *case.quantiles("prompt_tokens", 0.5)),
            Evidence("prompt tokens, 99th percentile", *case.quantiles("prompt_tokens", 0.99)),
            Evidence(
                "prompt tokens, mean over the slow requests",
                *case.slow_means("prompt_tokens"),
            ),
        ],
        levers=[
            Lever("give long prompts their own objective and servers"),
            Lever("shorten prompts: fewer retrieved passages, a summary of the conversation"),
        ],
    )
