"""A KV connector for vLLM whose asynchronous loads take a fixed time and copy nothing.

On a CPU, none of vLLM's own connectors loads asynchronously. For a prompt with at least
`least_tokens` tokens, this connector pretends that host memory contains the prompt's KV cache. The
responses are therefore meaningless.

vLLM imports this module, so its folder must be on the server's PYTHONPATH:

    --kv-transfer-config '{"kv_connector": "DelayedConnector", "kv_role": "kv_both",
      "kv_connector_module_path": "delayed_connector",
      "kv_connector_extra_config": {"delay_s": 0.2, "least_tokens": 256}}'
"""

import time
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource


class Beginning(KVConnectorMetadata):  # type: ignore[misc]  # vLLM is not installed for mypy
    """The ids of the requests whose KV cache begins to load in a step."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids


class DelayedConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """vLLM creates one instance in the scheduler and one in the worker."""

    _cache_hit_source = CacheHitSource.HOST

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        given = self._kv_transfer_config.get_from_extra_config
        self._delay_s = float(given("delay_s", 0.2))
        self._least_tokens = int(given("least_tokens", 256))
        self._block_tokens = vllm_config.cache_config.block_size
        self._beginning: list[str] = []
        self._ends: dict[str, float] = {}

    # The scheduler's methods.

    def get_num_new_matched_tokens(self, request: Any, computed: int) -> tuple[int, bool]:
        """The number of uncached tokens in the prompt's full blocks."""
        if request.num_tokens < self._least_tokens:
            return 0, False
        found = (request.num_tokens - 1) // self._block_tokens * self._block_tokens - computed
        return max(found, 0), found > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, tokens: int) -> None:
        """Record that the KV cache of a request begins to load."""
        if tokens > 0:
            self._beginning.append(request.request_id)

    def build_connector_meta(self, output: Any) -> KVConnectorMetadata:
        """The ids of the requests whose KV cache begins to load in this step."""
        beginning, self._beginning = self._beginning, []
        return Beginning(beginning)

    # The worker's methods.

    def start_load_kv(self, forward_context: Any, **_: Any) -> None:
        """Set the times at which the loads end."""
        ends = time.monotonic() + self._delay_s
        self._ends |= dict.fromkeys(self._get_connector_metadata().ids, ends)

    def get_finished(self, finished: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """The ids of the requests whose KV cache is loaded."""
        now = time.monotonic()
        ended = {request_id for request_id, ends in self._ends.items() if ends <= now}
        for request_id in ended:
            del self._ends[request_id]
        return None, ended

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, metadata: Any, **_: Any) -> None:
        """Do nothing."""

    def wait_for_save(self) -> None:
        """Do nothing."""
