from dataclasses import replace

import numpy as np
import pytest

from diagnosis.question import Metric
from tests.diagnosis.making import (
    asked,
    busier,
    evidence,
    first_cause,
    flags,
    fleet,
    later,
    quiet,
    shares,
    well_cached,
    working,
)


@pytest.mark.parametrize("metric", [Metric.TPOT, Metric.ITL_MAX])
def test_longer_prompts_of_others_stretch_the_decodes(metric: Metric) -> None:
    servers = fleet(
        {"prefill_tokens_total": 8e3},
        {"prefill_tokens_total": 2e3},
        scheduler__max_num_batched_tokens=8192,
    )
    stretched = later(working(quiet(), prompts=4.0), decode_others_prefill_s=lambda old: old * 12)
    first = first_cause(asked(stretched, metric, servers), "prefill_interference", 0.9)
    assert evidence(first, "prompt tokens computed/s") == pytest.approx((2e3, 8e3))
    before, now = evidence(first, "prompt tokens, mean")
    assert now == pytest.approx(4 * (before or 0), rel=0.1)
    assert flags(first)["--max-num-batched-tokens"].endswith("(8192 → 2048)")


def test_decodes_that_stretch_each_other_are_no_interference() -> None:
    stretched = later(quiet(), decode_others_decode_s=lambda old: old * 6)
    assert list(shares(asked(stretched, Metric.TPOT))) == ["decode_batch_growth"]


def test_misses_that_stretch_the_decodes_are_no_interference() -> None:
    stretched = later(
        working(well_cached(quiet()), hits=0.0), decode_others_prefill_s=lambda old: old * 12
    )
    assert list(shares(asked(stretched, Metric.TPOT))) == ["prefix_cache_miss"]


def test_a_mechanism_names_the_tenant_that_causes_it() -> None:
    """One tenant sent most of the added prompt tokens, so the first advice is to limit this
    tenant."""
    requests = busier(quiet(12_000), 5, tenant="acme")
    stretched = later(requests, decode_others_prefill_s=lambda old: old * 12)
    first = asked(stretched, Metric.TPOT).causes[0]
    assert (first.id, first.where) == ("prefill_interference", {"tenant": "acme"})
    before, now = evidence(first, "prompt tokens/s of acme")
    assert now == pytest.approx(5 * (before or 0.0), rel=0.15)
    assert first.levers[0].action == "limit the rate of acme at the gateway"


def test_equal_growth_of_all_tenants_names_no_tenant() -> None:
    stretched = later(busier(quiet(), 3), decode_others_prefill_s=lambda old: old * 12)
    first = asked(stretched, Metric.TPOT).causes[0]
    assert (first.id, first.where) == ("prefill_interference", {})


def test_many_prompts_that_fit_into_a_step_delay_the_first_token() -> None:
    """Each prompt fits into one step. Longer prompts would block others for several steps."""
    requests = busier(quiet(), 2, tenant="acme")
    long = requests.label("tenant").is_value("acme")
    long &= np.random.default_rng(3).random(len(requests)) < 0.5
    beside = {"others_prefill_tokens_max": np.full(len(requests), 8_192.0)}
    requests = replace(requests, numbers={**requests.numbers, **beside})
    queued = later(
        requests,
        prompt_tokens=lambda old: np.where(long, 7_000.0, old),
        queue_budget_s=2.0,
    )
    found = shares(asked(queued, Metric.QUEUE))
    assert next(iter(found)) == "prefill_interference"
    assert "long_prompt_blocking" not in found
