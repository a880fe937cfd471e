"""Print vLLM's estimates of bytes and FLOPs for some steps, and the plugin's model shape.

Run the module inside vLLM's own environment: `python vllm_step_costs.py DIR...`. Each folder
contains a model's config.json. The output has one JSON object per line.
"""

import json
import sys
from typing import Any

STEPS: dict[str, list[tuple[int, int, bool]]] = {
    "decodes": [(1, context, False) for context in (100, 1000, 3000)],
    "prompt": [(500, 500, True)],
    "both": [(300, 800, True), (1, 2000, False)],
}
"""The requests of each step. For each request: the tokens in the step, the context tokens after the
step, and whether it is prefill."""


def terms_and_shape(folder: str) -> dict[str, Any]:
    """The shape of the model in a folder, and vLLM's estimates for `STEPS`."""
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
        print(json.dumps(terms_and_shape(each)), flush=True)
