"""Prefills of other requests share the steps of running decodes and stretch them."""

from diagnosis.case import Case
from diagnosis.causes import blame
from diagnosis.causes.claim import Claim, Evidence, Lever
from diagnosis.causes.levers import lever
from diagnosis.causes.queueing import mostly_prefills, waiting

ID = "prefill_interference"
SUMMARY = "prefills of other requests share the steps of running decodes and stretch them"


def detect(case: Case) -> Claim | None:
    """Claims what others' prefills cost the decodes, where longer prompts brought it about."""
    drivers = (blame.PROMPTS, blame.LOAD) if mostly_prefills(case) else (blame.PROMPTS,)
    weights = waiting(case, *drivers)
    decodes = {name: share for name, share in weights.items() if name == "decode_others_prefill"}
    if case.grown_s("decode_others_prefill") <= 0 or not decodes:
        return None
    return Claim(
        cause=ID,
        weights=decodes,
        evidence=[
            Evidence(
                "prompt tokens of others in one step, at most, mean over the slow requests",
                *case.of_usual_and_slow("others_prefill_tokens_max"),
            ),
            Evidence(
                "prompt tokens, mean",
                case.demand.prompt_before_tokens,
                case.demand.prompt_now_tokens,
            ),
            Evidence("prompt tokens computed/s", *case.rate("prefill_tokens_total")),
        ],
        levers=[
            lever(case, "smaller steps", "--max-num-batched-tokens", factor=0.25),
            Lever("a class of servers of its own for long prompts, or prefill apart from decode"),
        ],
    )
