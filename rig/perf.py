"""Bytes and FLOPs of a step by vLLM's own model, and the model's shape as we report it.

Run inside vLLM's own environment, once for several models: `python perf.py DIR...`, each with
a config.json. Prints a JSON object a line: the shape as the instrumentation reports it, and
vLLM's terms for some steps.
"""

import json
import sys
from typing import Any

STEPS: dict[str, list[tuple[int, int, bool]]] = {
    "decodes": [(1, context, False) for context in (100, 1000, 3000)],
    "prompt": [(500, 500, True)],
    "both": [(300, 800, True), (1, 2000, False)],
}
"""Requests of a step as vLLM counts them: tokens, context with them, whether it is a prompt."""


def told(folder: str) -> dict[str, Any]:
    """Return the shape and the terms of the model in a folder."""
    from tailspan_vllm.engine_state.model_shape import shape_of
    from vllm.config import CacheConfig, ModelConfig, ParallelConfig, VllmConfig
    from vllm.v1.metrics.perf import ExecutionContext, ModelMetrics

    model = ModelConfig(model=folder, skip_tokenizer_init=True, max_model_len=512)
    config = VllmConfig(
        model_config=model, cache_config=CacheConfig(), parallel_config=ParallelConfig()
    )
    metrics = ModelMetrics(config)
    terms = {}
    for name, requests in STEPS.items():
        step = ExecutionContext()
        for request in requests:
            step.add(*request)
        terms[name] = {
            "flops": metrics.get_num_flops_breakdown(step),
            "read": metrics.get_read_bytes_breakdown(step),
            "write": metrics.get_write_bytes_breakdown(step),
        }
    return {"shape": shape_of(config), "terms": terms}


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(json.dumps(told(each)), flush=True)
