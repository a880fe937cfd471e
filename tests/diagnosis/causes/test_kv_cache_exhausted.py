import pytest

from tests.diagnosis.making import (
    asked,
    busier,
    evidence,
    flags,
    fleet,
    later,
    quiet,
    shares,
    working,
)


def test_a_queue_for_blocks_is_a_full_cache() -> None:
    """Half of the blocks are gone, and the traffic is unchanged."""
    servers = fleet(
        {"kv_usage_ratio": 0.99, "running": 20},
        {"kv_usage_ratio": 0.8, "running": 40},
        model__max_model_len=32768,
    )
    first = asked(later(quiet(), queue_kv_s=0.5), servers=servers)
    full = first.causes[0]
    assert full.id == "kv_cache_exhausted"
    assert full.share > 0.85
    assert evidence(full, "KV cache in use") == pytest.approx((0.8, 0.99))
    assert evidence(full, "requests running") == (40, 20)
    assert "--kv-cache-dtype fp8" in flags(full)
    assert flags(full)["--max-model-len"].endswith("(32768 → 16384)")


def test_a_queue_for_places_is_no_full_cache() -> None:
    servers = fleet({}, {"kv_usage_ratio": 0.4})
    found = shares(asked(later(quiet(), queue_seats_s=0.5), servers=servers))
    assert "kv_cache_exhausted" not in found


def test_longer_prompts_that_fill_the_cache_are_the_cause() -> None:
    found = shares(asked(later(working(quiet(), prompts=4.0), queue_kv_s=2.0)))
    assert next(iter(found)) == "longer_prompts"
    assert found.get("kv_cache_exhausted", 0.0) < 0.2


def test_more_requests_than_the_cache_can_hold_exhaust_it() -> None:
    found = shares(asked(later(busier(quiet(), 2), queue_kv_s=0.5)))
    assert next(iter(found)) == "kv_cache_exhausted"
    assert "load_exceeds_capacity" not in found


def test_a_batch_that_grows_with_the_load_does_not_blame_the_prompts() -> None:
    """With three times the requests, each step takes longer, so requests keep their blocks longer.

    The prompts are slightly longer, too.
    """
    more = working(busier(quiet(), 3), prompts=1.3)
    each_s = 0.05 * (more.numbers["output_tokens"] - 1)
    found = shares(
        asked(later(more, queue_kv_s=0.5, decode_others_decode_s=lambda old: old + each_s))
    )
    assert found["kv_cache_exhausted"] > 0.68
    assert found["longer_prompts"] < 0.32


def test_more_requests_and_fewer_blocks_share_the_wait_for_them() -> None:
    """Half the blocks or twice the requests alone would cause only a part of the wait."""
    servers = fleet({"kv_usage_ratio": 0.99, "running": 20}, {"kv_usage_ratio": 0.8, "running": 40})
    found = shares(asked(later(busier(quiet(), 2), queue_kv_s=2.0), servers=servers))
    assert min(found["kv_cache_exhausted"], found["load_exceeds_capacity"]) > 0.3
