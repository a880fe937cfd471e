"""All detectors. The keys are the cause ids that `tailspan explain` prints."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from diagnosis.causes import (
    cold_start,
    config_change,
    decode_batch_growth,
    encoder,
    engine_hang,
    engine_stall,
    frontend_cpu,
    gpu_throttling,
    grammar_compile,
    kv_cache_exhausted,
    kv_transfer,
    load_exceeds_capacity,
    long_prompt_blocking,
    longer_outputs,
    longer_prompts,
    lora_swap,
    network_or_client,
    noisy_neighbour,
    preemption,
    prefill_interference,
    prefix_cache_miss,
    replica_imbalance,
    retry_storm,
    slow_rank,
    spec_decode_rejection,
    tenant_flood,
)
from diagnosis.claim import Detector

_MODULES = (
    load_exceeds_capacity,
    kv_cache_exhausted,
    preemption,
    prefill_interference,
    long_prompt_blocking,
    longer_prompts,
    longer_outputs,
    prefix_cache_miss,
    decode_batch_growth,
    frontend_cpu,
    engine_stall,
    cold_start,
    lora_swap,
    spec_decode_rejection,
    gpu_throttling,
    noisy_neighbour,
    slow_rank,
    kv_transfer,
    network_or_client,
    tenant_flood,
    replica_imbalance,
    config_change,
    engine_hang,
    retry_storm,
    grammar_compile,
    encoder,
)

DETECTORS: Final[Mapping[str, Detector]] = MappingProxyType(
    {module.ID: module.detect for module in _MODULES}
)

SUMMARIES: Final[Mapping[str, str]] = MappingProxyType(
    {module.ID: module.SUMMARY for module in _MODULES}
)
