"""Prefills of other requests share the steps of running decodes and stretch them."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.levers import lever
from diagnosis.evidence.traffic_growth import tenant_evidence
from diagnosis.evidence.waits import prefill_share
from diagnosis.growth.case import Case

ID = "prefill_interference"
SUMMARY = "prefills of other requests share the steps of running decodes and stretch them"


def detect(case: Case) -> Claim | None:
    """Return a claim on the time by which other requests' prefills delay decodes. Only the delay
    that longer or more prompts cause is claimed."""
    shares = drivers.for_prefill(case)
    share = shares.get(drivers.PROMPTS, 0.0) + shares.get(drivers.LOAD, 0.0) * prefill_share(case)
    if case.grown_s("decode_others_prefill") <= 0 or not share:
        return None
    where, who, limit = tenant_evidence(case, "prompt_tokens")
    return Claim(
        cause=ID,
        weights={"decode_others_prefill": share},
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
