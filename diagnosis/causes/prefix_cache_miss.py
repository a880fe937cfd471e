"""Fewer prompt tokens are found in the prefix cache, so more tokens are computed."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.levers import lever_if
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import NOISE

ID = "prefix_cache_miss"
SUMMARY = "fewer prompt tokens are found in the prefix cache, so more tokens are computed"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the prefill of tokens that are no longer cached.

    Also claim the delay by the cache misses of other requests."""
    if case.demand.log_uncached <= NOISE:
        return None
    return Claim(
        cause=ID,
        weights={**wait_weights(case, drivers.MISSES), "prefill_uncached": 1.0},
        evidence=[
            Evidence(
                "share of prompt tokens found in the cache",
                1.0 - case.demand.uncached_expected_ratio,
                1.0 - case.demand.uncached_now_ratio,
            ),
            Evidence(
                "hit ratio of the engine's prefix cache",
                *case.ratio("prefix_cache_hits_tokens_total", "prefix_cache_queries_tokens_total"),
            ),
            Evidence("prompt tokens computed/s", *case.rate("prefill_tokens_total")),
        ],
        levers=[
            Lever("route a conversation to the replica that has its prefix cached"),
            Lever("move variable text (time, user) away from the beginning of the prompt"),
            Lever("keep evicted blocks in host memory", "--kv-offloading-size"),
            *lever_if(case, "turn the cache on", "--enable-prefix-caching", False),
        ],
    )
