from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.requests import Requests
from tests.diagnosis.making import (
    ALPHA_S,
    asked,
    busier,
    evidence,
    first_cause,
    flags,
    later,
    quiet,
    shares,
    working,
)


def blocked(requests: Requests) -> Requests:
    return later(requests, prefill_others_prefill_s=2.0, queue_budget_s=1.0)


def a_few_huge(requests: Requests | None = None) -> Requests:
    """Give one of fifty requests 30,000 prompt tokens. All requests report 900 prompt tokens of
    another request in one step."""
    requests = requests or quiet()
    huge = np.random.default_rng(2).random(len(requests)) < 0.02
    beside = {"others_prefill_tokens_max": np.full(len(requests), 900.0)}
    requests = replace(requests, numbers={**requests.numbers, **beside})
    return later(
        requests,
        prompt_tokens=lambda old: np.where(huge, 30_000.0, old),
        cached_tokens=lambda old: np.where(huge, 0.0, old),
        prefill_own_s=lambda old: np.where(huge, ALPHA_S * 30_000, old),
        others_prefill_tokens_max=8_192.0,
    )


def test_a_few_huge_prompts_block_the_short_ones() -> None:
    """The 99th percentile of prompt lengths grows, and the median stays."""
    first = first_cause(asked(blocked(a_few_huge())), "long_prompt_blocking", 0.6)
    longest_before, longest_now = evidence(first, "prompt tokens, 99th percentile")
    assert longest_now == 30_000
    assert (longest_before or 0) < 10_000
    middle_before, middle_now = evidence(first, "prompt tokens, median")
    assert middle_now == pytest.approx(middle_before, rel=0.1)
    assert evidence(first, "most prompt tokens of other requests in one step") == (900, 8_192)
    assert "--long-prefill-token-threshold 2048" in flags(first)


def test_transfers_of_huge_prompts_block_the_link() -> None:
    """The uncached rest of a huge prompt fits into one step, but its transfer occupies the link."""
    requests = later(
        a_few_huge(),
        cached_tokens=lambda old: np.where(old == 0, 28_000.0, old),
    )
    outside = {"external_cached_tokens": np.full(len(requests), 256.0)}
    requests = replace(requests, numbers={**requests.numbers, **outside})
    huge = requests.numbers["prompt_tokens"] == 30_000
    requests.numbers["external_cached_tokens"][huge] = 28_000.0
    draw = np.random.default_rng(8)
    held_s = 1e-5 * requests.numbers["external_cached_tokens"]
    requests = replace(requests, numbers={**requests.numbers, "queue_held_s": held_s})
    requests = later(requests, queue_held_s=lambda old: old + draw.exponential(1.0, len(requests)))
    found = shares(asked(requests))
    assert "long_prompt_blocking" in found
    assert "prefill_interference" not in found


def test_prompts_that_are_all_longer_are_no_blocking() -> None:
    found = shares(asked(blocked(working(quiet(), prompts=4.0))))
    assert next(iter(found)) == "longer_prompts"
    assert "long_prompt_blocking" not in found


def test_huge_prompts_without_a_wait_are_no_blocking() -> None:
    assert "long_prompt_blocking" not in shares(asked(a_few_huge()))


def test_a_few_huge_prompts_among_longer_ones_have_a_separate_share() -> None:
    found = shares(asked(blocked(a_few_huge(working(quiet(), prompts=2.0)))))
    assert min(found["long_prompt_blocking"], found["longer_prompts"]) > 0.2


def test_long_prompts_of_one_tenant_are_not_longer_prompts_of_all() -> None:
    """Half of the traffic has long prompts, but all of these requests are of one tenant."""
    requests = busier(quiet(), 4, tenant="acme")
    long = requests.label("tenant").is_value("acme")
    tokens = np.where(long, 8_000.0, requests.numbers["prompt_tokens"])
    found = shares(asked(blocked(later(requests, prompt_tokens=tokens))))
    assert found["long_prompt_blocking"] > found.get("longer_prompts", 0.0)
