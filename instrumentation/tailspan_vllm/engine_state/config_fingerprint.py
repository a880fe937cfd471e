"""The engine arguments that affect latency, and a fingerprint of their values.

If a text could identify the server's owner, such as a model's path, it is reported as a digest.
"""

import hashlib
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

Scalar = str | int | float | bool

_ARGUMENTS = {
    "model_config": ("model", "dtype", "quantization", "max_model_len", "enforce_eager"),
    "cache_config": (
        "block_size",
        "cache_dtype",
        "enable_prefix_caching",
        "gpu_memory_utilization",
        "num_gpu_blocks_override",
        "kv_cache_memory_bytes",
        "kv_offloading_size",
    ),
    "scheduler_config": (
        "max_num_seqs",
        "max_num_batched_tokens",
        "enable_chunked_prefill",
        "long_prefill_token_threshold",
        "max_num_partial_prefills",
        "max_num_queued_reqs",
        "max_num_queued_tokens",
        "policy",
        "async_scheduling",
        "stream_interval",
    ),
    "parallel_config": (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "decode_context_parallel_size",
        "enable_expert_parallel",
        "enable_eplb",
        "enable_dbo",
        "all2all_backend",
    ),
    "lora_config": ("max_loras", "max_cpu_loras", "max_lora_rank"),
    "speculative_config": (
        "method",
        "model",
        "num_speculative_tokens",
        "prompt_lookup_max",
        "prompt_lookup_min",
        "draft_tensor_parallel_size",
    ),
    "kv_transfer_config": ("kv_connector", "kv_role"),
    "attention_config": ("backend",),
    "compilation_config": ("mode", "cudagraph_mode"),
    "device_config": ("device_type",),
}

_MEASURED = {"cache_config": ("num_gpu_blocks",)}
"""Values that the engine computes at its start. The fingerprint leaves these values out."""


def _names_in(table: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    return frozenset(
        f"{part.removesuffix('_config')}.{name}" for part, names in table.items() for name in names
    )


MEASURED = _names_in(_MEASURED)
NAMES = _names_in(_ARGUMENTS) | MEASURED


def arguments_of(vllm_config: Any) -> dict[str, Scalar]:
    """The effective values of the arguments. Unset arguments are left out. The keys are names such
    as `scheduler.max_num_seqs`."""
    found: dict[str, Scalar] = {}
    for table in (_ARGUMENTS, _MEASURED):
        for part, argument_names in table.items():
            config = getattr(vllm_config, part, None)
            for name in argument_names:
                value = _reported(getattr(config, name, None))
                if value is not None:
                    found[f"{part.removesuffix('_config')}.{name}"] = value
    if not found.get("cache.num_gpu_blocks"):
        found.pop("cache.num_gpu_blocks", None)  # vLLM has not measured its memory yet
    return found


def fingerprint(arguments: Mapping[str, Scalar]) -> str:
    """Return eight hex digits that identify the values of the arguments."""
    chosen = {name: value for name, value in arguments.items() if name not in MEASURED}
    return _digest(json.dumps(chosen, sort_keys=True))


def _reported(value: Any) -> Scalar | None:
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float):
        return value
    text = (value if isinstance(value, str) else str(value)).removeprefix("torch.")
    plain = len(text) <= 64 and all(each.isalnum() or each in "._-+" for each in text)
    return text if plain else f"sha256:{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
