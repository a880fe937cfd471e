"""Prefills of other requests share the steps of running decodes and stretch them."""

from diagnosis.case import Case
from diagnosis.causes import blame
from diagnosis.causes.claim import Claim, Evidence, Lever
from diagnosis.causes.levers import lever
from diagnosis.causes.queueing import of_prefills
from diagnosis.causes.traffic_growth import driven_by

ID = "prefill_interference"
SUMMARY = "prefills of other requests share the steps of running decodes and stretch them"


def detect(case: Case) -> Claim | None:
    """Claims what others' prefills cost the decodes, where longer prompts or more of them brought
    it about."""
    blamed = blame.for_prefill(case)
    share = blamed.get(blame.PROMPTS, 0.0) + blamed.get(blame.LOAD, 0.0) * of_prefills(case)
    if case.grown_s("decode_others_prefill") <= 0 or not share:
        return None
    where, who, limit = driven_by(case, "prompt_tokens")
    return Claim(
        cause=ID,
        weights={"decode_others_prefill": share},
        evidence=[
            *who,
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
            *limit,
            lever(case, "smaller steps", "--max-num-batched-tokens", factor=0.25),
            Lever("a class of servers of its own for long prompts, or prefill apart from decode"),
        ],
        where=where,
    )
