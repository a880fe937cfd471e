"""Faults of the request rate. More requests arrive than the batch or the memory can hold."""

import random
from dataclasses import replace

from rig.faults.fault import ServerFault
from rig.faults.traffic import PlannedTraffic


def _blocks(count: int) -> tuple[str, ...]:
    """vLLM's arguments for a KV cache with `count` usable blocks of 128 tokens.

    vLLM needs one more block for itself.
    """
    return (
        *("--max-num-seqs", "32", "--max-model-len", "1024"),
        *("--num-gpu-blocks-override", str(count + 1), "--block-size", "128"),
    )


def load_exceeds_capacity(
    draw: random.Random, severity: float, usual: PlannedTraffic
) -> ServerFault:
    """Send more requests of every tenant to a server with a small batch."""
    times = 1.0 + draw.uniform(0.9, 1.2) * severity
    return ServerFault(
        cause="load_exceeds_capacity",
        metric="ttft",
        arguments=("--max-num-seqs", "3"),
        usual=usual,
        during=replace(usual, rate_per_s=usual.rate_per_s * times),
        notes={"rate_ratio": times},
    )


def tenant_flood(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Multiply the usual traffic of one tenant, so that the other tenants wait."""
    more = draw.uniform(0.9, 1.2) * severity
    flood = replace(
        usual, rate_per_s=usual.rate_per_s * more, tenants=(draw.choice(usual.tenants),)
    )
    return ServerFault(
        cause="tenant_flood",
        metric="ttft",
        arguments=("--max-num-seqs", "3"),
        usual=usual,
        during=replace(usual, extra=(flood,)),
        notes={"rate_ratio": 1.0 + more},
    )


def decode_batch_growth(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Send more requests with long contexts. The server decodes them all at the same time in a
    large batch."""
    usual = replace(
        usual,
        rate_per_s=0.7 * usual.rate_per_s,
        # The prefix fills whole KV-cache blocks, so all of it is cached.
        prefix_tokens=draw.randrange(1536, 2048, 128),
        prompt_tokens=(1, 8),
        output_tokens=(24, 48),
        stream=False,
    )
    times = 1.0 + draw.uniform(1.6, 2.0) * severity
    return ServerFault(
        cause="decode_batch_growth",
        metric="tpot",
        usual=usual,
        during=replace(usual, rate_per_s=usual.rate_per_s * times),
        notes={"rate_ratio": times},
    )


def kv_cache_exhausted(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Send prompts that together need more KV-cache blocks than the server has."""
    usual = replace(
        usual,
        rate_per_s=0.8 * usual.rate_per_s,
        prefix_tokens=0,
        prompt_tokens=(380, 500),
        output_tokens=(10, 12),
    )
    times = 1.0 + draw.uniform(1.0, 1.4) * severity
    return ServerFault(
        cause="kv_cache_exhausted",
        metric="ttft",
        arguments=_blocks(8),
        usual=usual,
        during=replace(usual, rate_per_s=usual.rate_per_s * times),
        notes={"rate_ratio": times},
    )


def preemption(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Send requests that start with few KV-cache blocks, and grow until no block is free."""
    usual = replace(
        usual,
        rate_per_s=0.8 * usual.rate_per_s,
        prefix_tokens=0,
        prompt_tokens=(80, 120),
        output_tokens=(60, 80),
        stream=False,
    )
    times = 1.0 + draw.uniform(0.8, 1.1) * severity
    return ServerFault(
        cause="preemption",
        metric="itl_max",
        arguments=_blocks(10),
        usual=usual,
        during=replace(usual, rate_per_s=usual.rate_per_s * times),
        notes={"rate_ratio": times},
    )
