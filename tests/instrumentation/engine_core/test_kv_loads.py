from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm.engine_core.kv_loads import KvLoads, bytes_per_token
from tailspan_vllm.request.parts import KvLoad


class Source(StrEnum):
    """vLLM's names of the tiers."""

    DEVICE = "device"
    HOST = "host"
    P2P = "p2p"
    DISK = "disk"
    EXTERNAL_UNSPECIFIED = "external_unspecified"


def scheduler(*groups: Any, connector: Any = None, **parallel: int) -> Any:
    """Return a scheduler with 4 layers of 32 kB per block of 16 tokens, or with given groups."""
    spec = SimpleNamespace(page_size_bytes=32_000, block_size=16)
    group = SimpleNamespace(kv_cache_spec=spec, layer_names=["a", "b", "c", "d"])
    sizes = {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "decode_context_parallel_size": 1,
        **parallel,
    }
    cache = SimpleNamespace(kv_cache_groups=groups or (group,))
    return SimpleNamespace(
        kv_cache_manager=SimpleNamespace(kv_cache_config=cache),
        vllm_config=SimpleNamespace(parallel_config=SimpleNamespace(**sizes)),
        connector=connector,
    )


def test_the_bytes_of_a_load_follow_from_the_layout_of_the_cache() -> None:
    assert bytes_per_token(scheduler()) == 8_000
    assert bytes_per_token(scheduler(tensor_parallel_size=2)) == 16_000
    several = SimpleNamespace(page_size_bytes=64_000, block_size=16, kv_cache_specs={})
    of_several = SimpleNamespace(kv_cache_spec=several, layer_names=["a", "b"])
    assert bytes_per_token(scheduler(of_several)) == 4_000


@pytest.mark.parametrize(
    "which",
    [
        *("pipeline_parallel_size", "decode_context_parallel_size"),
        "prefill_context_parallel_size",
    ],
)
def test_bytes_that_one_rank_cannot_know_are_unknown(which: str) -> None:
    assert bytes_per_token(scheduler(**{which: 2})) is None
    group = scheduler().kv_cache_manager.kv_cache_config.kv_cache_groups[0]
    assert bytes_per_token(scheduler(group, group)) is None


@pytest.mark.parametrize(
    ("sources", "tier"),
    [
        ({Source.HOST: 64}, "host"),
        ({Source.DISK: 32, Source.HOST: 32}, "disk"),
        ({Source.P2P: 64}, "p2p"),
        ({Source.HOST: 32, Source.EXTERNAL_UNSPECIFIED: 32}, "other"),
        ({}, None),
    ],
)
def test_the_tier_is_the_outermost(sources: dict[Source, int], tier: str | None) -> None:
    asked: list[int] = []

    def sources_of(request: Any, tokens: int) -> dict[Source, int]:
        asked.append(tokens)
        return sources

    connector = SimpleNamespace(get_external_cache_hit_sources=sources_of)
    loads = KvLoads(scheduler(connector=connector))
    assert loads.load_of("request", 64) == KvLoad(512_000, tier)
    assert asked == [64]


def test_a_connector_that_reports_no_tier_has_bytes() -> None:
    loads = KvLoads(scheduler(connector=object()))
    assert loads.load_of("request", 64) == KvLoad(512_000, None)
