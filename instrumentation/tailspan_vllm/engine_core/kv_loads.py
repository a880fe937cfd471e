"""Finds the size and the storage tier of the KV cache that a connector loaded for a request.

Source: vllm/v1/kv_cache_interface.py, 0.12 to 0.33;
vllm/distributed/kv_transfer/kv_connector/v1/base.py, `get_external_cache_hit_sources`, since 0.32.
"""

from collections.abc import Mapping
from typing import Any, Final

from tailspan_vllm.request.parts import TIERS, KvLoad

_TIERS: Final[Mapping[str, str]] = {"host": "host", "p2p": "p2p", "disk": "disk"}


class KvLoads:
    """The KV-cache loads of one engine."""

    def __init__(self, scheduler: Any) -> None:
        self._bytes_per_token = bytes_per_token(scheduler)
        self._tiers_of = getattr(scheduler.connector, "get_external_cache_hit_sources", None)

    def load_of(self, request: Any, tokens: int) -> KvLoad:
        """The size and the tier of a load. Call this in the step that started the load."""
        per_token = self._bytes_per_token
        return KvLoad(
            None if per_token is None else round(tokens * per_token), self._tier(request, tokens)
        )

    def _tier(self, request: Any, tokens: int) -> str | None:
        if self._tiers_of is None:
            return None
        tiers = {_TIERS.get(each.value, "other") for each in self._tiers_of(request, tokens)}
        return max(tiers, key=TIERS.index) if tiers else None


def bytes_per_token(scheduler: Any) -> float | None:
    """Bytes of KV cache per token over all tensor-parallel ranks, or None if unknown.

    With pipeline parallelism, the scheduler has only one stage's layers. With several groups of
    layers, each group may load a different number of tokens.
    """
    groups = scheduler.kv_cache_manager.kv_cache_config.kv_cache_groups
    parallel = scheduler.vllm_config.parallel_config
    shared = parallel.pipeline_parallel_size * parallel.decode_context_parallel_size
    shared *= getattr(parallel, "prefill_context_parallel_size", 1)
    if len(groups) != 1 or shared != 1:
        return None
    (group,) = groups
    spec = group.kv_cache_spec
    # If a spec has `kv_cache_specs`, its page size is already the sum over the layers.
    layers = 1 if hasattr(spec, "kv_cache_specs") else len(group.layer_names)
    per_rank: float = layers * spec.page_size_bytes / spec.block_size
    return per_rank * int(parallel.tensor_parallel_size)
