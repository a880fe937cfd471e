import numpy as np
import pytest

from tests.diagnosis.making import (
    ALPHA_S,
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

TOKENS = "prefix_cache_queries_tokens_total"
HITS = "prefix_cache_hits_tokens_total"


def test_prompts_that_are_no_longer_found_are_misses() -> None:
    servers = fleet({HITS: 0.0}, {TOKENS: 1e3, HITS: 8e2}, cache__enable_prefix_caching=False)
    requests = working(well_cached(quiet()), hits=0.0)
    first = first_cause(asked(requests, servers=servers), "prefix_cache_miss", 0.9)
    assert evidence(first, "share of prompt tokens found") == pytest.approx((0.8, 0.0), abs=0.03)
    assert evidence(first, "hit ratio of the engine") == pytest.approx((0.8, 0.0))
    assert flags(first)["--enable-prefix-caching"] == "turn the cache on"


def test_an_enabled_cache_is_not_recommended() -> None:
    first = asked(working(well_cached(quiet()), hits=0.0)).causes[0]
    assert "--enable-prefix-caching" not in flags(first)
    assert "--kv-offloading-size" in flags(first)


def test_longer_prompts_with_as_many_hits_are_no_misses() -> None:
    found = shares(asked(working(well_cached(quiet()), prompts=4.0, hits=4.0)))
    assert next(iter(found)) == "longer_prompts"
    assert "prefix_cache_miss" not in found


def test_the_prefill_of_others_misses_is_attributed_to_misses() -> None:
    missed = later(working(well_cached(quiet()), hits=0.0), prefill_others_prefill_s=0.8)
    assert shares(asked(missed))["prefix_cache_miss"] > 0.9


def test_new_prompts_of_one_tenant_are_not_misses_of_the_others() -> None:
    requests = busier(well_cached(quiet()), 5, tenant="acme")
    new = requests.label("tenant").is_value("acme")
    uncached = later(
        requests,
        cached_tokens=lambda old: np.where(new, 0.0, old),
        prefill_own_s=lambda old: np.where(
            new, 0.005 + ALPHA_S * requests.numbers["prompt_tokens"], old
        ),
        queue_budget_s=2.0,
    )
    found = shares(asked(uncached))
    assert next(iter(found)) == "tenant_flood"
    assert found.get("prefix_cache_miss", 0.0) < 0.1
