"""Which engine arguments matter to latency, and a short name for their combination."""

import hashlib
import json
from typing import Any

_ARGUMENTS = {
    "model_config": ("model", "dtype", "quantization", "max_model_len", "enforce_eager"),
    "cache_config": (
        "block_size",
        "cache_dtype",
        "enable_prefix_caching",
        "gpu_memory_utilization",
        "num_gpu_blocks_override",
    ),
    "scheduler_config": (
        "max_num_seqs",
        "max_num_batched_tokens",
        "enable_chunked_prefill",
        "long_prefill_token_threshold",
        "max_num_partial_prefills",
        "policy",
        "async_scheduling",
    ),
    "parallel_config": (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "enable_expert_parallel",
    ),
    "lora_config": ("max_loras", "max_cpu_loras", "max_lora_rank"),
    "speculative_config": ("method", "num_speculative_tokens"),
}


def arguments_of(vllm_config: Any) -> dict[str, str]:
    """The arguments that matter to latency, by `part.name`; those this vLLM lacks are absent."""
    found = {}
    for part, argument_names in _ARGUMENTS.items():
        config = getattr(vllm_config, part, None)
        if config is None:
            continue
        for name in argument_names:
            if hasattr(config, name):
                found[f"{part.removesuffix('_config')}.{name}"] = str(getattr(config, name))
    return found


def fingerprint(vllm_config: Any) -> str:
    """Eight hex digits that differ when an argument that matters to latency does."""
    told = json.dumps(arguments_of(vllm_config), sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:8]
