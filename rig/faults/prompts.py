"""Faults of the prompts: longer, very long, uncached, or expensive for the API server."""

import random
from dataclasses import replace
from typing import Any

from rig.faults.fault import ServerFault
from rig.faults.traffic import PlannedTraffic


def _some(
    usual: PlannedTraffic, per_s: float, prompt_tokens: tuple[int, int], **other: Any
) -> PlannedTraffic:
    """Replace `per_s` usual requests per second by long prompts with short responses."""
    those = replace(
        usual, rate_per_s=per_s, prompt_tokens=prompt_tokens, output_tokens=(2, 6), **other
    )
    return replace(usual, rate_per_s=usual.rate_per_s - per_s, extra=(those,))


def prefill_interference(
    draw: random.Random, severity: float, usual: PlannedTraffic
) -> ServerFault:
    """Send prompts of about 2,000 tokens while the requests of every tenant decode."""
    long_per_s = draw.uniform(0.9, 1.3) * severity
    return ServerFault(
        cause="prefill_interference",
        metric="itl_max",
        usual=usual,
        during=_some(usual, long_per_s, (1500, 2600)),
        notes={"long_per_s": long_per_s},
    )


def long_prompt_blocking(
    draw: random.Random, severity: float, usual: PlannedTraffic
) -> ServerFault:
    """Send a prompt of 7,000 tokens now and then, and short prompts after it."""
    long_per_s = draw.uniform(0.12, 0.18) * severity
    return ServerFault(
        cause="long_prompt_blocking",
        metric="ttft",
        usual=usual,
        during=_some(usual, long_per_s, (6000, 7200)),
        notes={"long_per_s": long_per_s},
    )


def longer_prompts(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Lengthen the part of each prompt that follows the shared prefix."""
    more = int(draw.uniform(450, 650) * severity)
    return ServerFault(
        cause="longer_prompts",
        metric="ttft",
        usual=usual,
        during=replace(usual, prompt_tokens=(32 + more, 160 + more)),
        notes={"more_tokens": more},
    )


def prefix_cache_miss(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Remove the shared prefix from some prompts. The severity determines how many."""
    missing = min(1.0, severity * draw.uniform(0.8, 1.0))
    return ServerFault(
        cause="prefix_cache_miss",
        metric="ttft",
        usual=usual,
        during=replace(
            usual,
            rate_per_s=usual.rate_per_s * (1.0 - missing) + 1e-9,
            extra=(replace(usual, rate_per_s=usual.rate_per_s * missing, shared=False),),
        ),
        notes={"missing_ratio": missing},
    )


def frontend_cpu(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Send prompts of a hundred kilobytes. The API server passes only the last hundred tokens of
    each prompt to the engine."""
    huge_per_s = draw.uniform(1.5, 2.0)
    huge = (int(80_000 * severity), int(140_000 * severity))
    return ServerFault(
        cause="frontend_cpu",
        metric="ttft",
        usual=usual,
        during=_some(usual, huge_per_s, huge, body={"truncate_prompt_tokens": 100}),
        notes={"huge_per_s": huge_per_s},
    )
