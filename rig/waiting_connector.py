"""A KV connector with which a decode engine waits for the KV cache, as with Mooncake or NIXL.

It is vLLM's ExampleConnector with two more abilities, which a request selects by its
`kv_transfer_params`:

- `wait_for_kv`: the decode engine holds the request until the prefill engine has stored the KV
  cache. A router can thus send a request to both servers at the same time.
- `lost_from_block`: the load of this block, and of all later blocks of the prompt, fails.

An engine loads only complete KV caches, so it survives if the other engine ends while it writes.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import (
    ExampleConnector,
    ExampleConnectorMetadata,
    ReqMeta,
    align_to_block_size,
)

COMPLETE = "complete"
"""This file is in the folder of each complete KV cache."""


@dataclass
class _Load:
    request: ReqMeta
    lost: set[int]
    """The ids of the blocks whose load fails."""


@dataclass
class WaitingMetadata(ExampleConnectorMetadata):  # type: ignore[misc]  # see delayed_connector
    """What the scheduler sends to the worker in a step."""

    loads: dict[str, _Load] = field(default_factory=dict)
    """The loads that begin in this step, by request id."""


class WaitingConnector(ExampleConnector):  # type: ignore[misc]
    """The connector, in the scheduler and in the worker."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._layers = vllm_config.compilation_config.static_forward_context
        self._new: dict[str, _Load] = {}
        self._pending: dict[str, _Load] = {}
        self._lost: set[int] = set()

    # The scheduler's methods.

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """How many tokens to load, and whether the request waits for them."""
        waits = (request.kv_transfer_params or {}).get("wait_for_kv")
        if waits is None:
            found: tuple[int | None, bool] = super().get_num_new_matched_tokens(
                request, num_computed_tokens
            )
            return found
        aligned = align_to_block_size(len(request.prompt_token_ids), self._block_size)
        missing = aligned - num_computed_tokens
        return (missing, True) if waits and missing > 0 else (0, False)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Begin a load when a request has its blocks."""
        params = request.kv_transfer_params or {}
        if not params.get("wait_for_kv") or not num_external_tokens:
            super().update_state_after_alloc(request, blocks, num_external_tokens)
            return
        params["wait_for_kv"] = False  # after a failed load, the engine computes the prompt
        ids = blocks.get_block_ids()[0]
        meta = ReqMeta.make_meta(request.prompt_token_ids, ids, self._block_size, False, [])
        loaded = ids[: len(meta.token_ids) // self._block_size]
        lost = loaded[params.get("lost_from_block", len(loaded)) :]
        self._new[request.request_id] = _Load(meta, set(lost))

    def build_connector_meta(self, scheduler_output: Any) -> WaitingMetadata:
        """Return what the worker must do in this step."""
        stores = super().build_connector_meta(scheduler_output).requests
        loads, self._new = self._new, {}
        return WaitingMetadata(stores, loads)

    def _found_match_for_prompt(self, prompt_token_ids: list[int], mm_hashes: list[str]) -> bool:
        aligned = align_to_block_size(len(prompt_token_ids) - 1, self._block_size)
        return self._is_complete(torch.tensor(prompt_token_ids)[:aligned], mm_hashes)

    # The worker's methods.

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Load the KV caches of requests that do not wait."""
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, WaitingMetadata)
        self._pending |= metadata.loads
        if any(not each.is_store for each in metadata.requests):
            super().start_load_kv(forward_context, **kwargs)

    def wait_for_save(self) -> None:
        """Mark the stored KV caches as complete."""
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, WaitingMetadata)
        for each in metadata.requests:
            if each.is_store:
                (self._folder(each.token_ids, each.mm_hashes) / COMPLETE).touch()

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """Load each KV cache that has become complete. Return the requests that waited for it."""
        ready = {
            request_id: load
            for request_id, load in self._pending.items()
            if self._is_complete(load.request.token_ids, [])
        }
        for request_id, load in ready.items():
            del self._pending[request_id]
            self._lost |= load.lost
            if not load.lost:
                self._load(load.request)
        return None, set(ready)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Return the blocks whose load has failed since the last call."""
        lost, self._lost = self._lost, set()
        return lost

    def _load(self, request: ReqMeta) -> None:
        folder = self._folder(request.token_ids, [])
        blocks = request.slot_mapping // self._block_size
        offsets = request.slot_mapping % self._block_size
        for name, layer in self._layers.items():
            if (cache := getattr(layer, "kv_cache", None)) is not None:
                stored = safetensors.torch.load_file(folder / f"{name}.safetensors")
                cache[blocks, :, offsets] = stored["kv_cache"]

    def _is_complete(self, token_ids: torch.Tensor, mm_hashes: list[str]) -> bool:
        return (self._folder(token_ids, mm_hashes) / COMPLETE).exists()

    def _folder(self, token_ids: torch.Tensor, mm_hashes: list[str]) -> Path:
        return Path(self._generate_foldername_debug(token_ids, mm_hashes))
