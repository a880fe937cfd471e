"""Tables of the series that engines export on /metrics, one for each kind of engine.

Versions of an engine rename and split series. A table lists the alternatives, and the first
alternative that the response contains is used. Source: vLLM 0.12 to 0.33, `v1/metrics/loggers.py`
(rig/contract checks each version), and its documentation for older names; SGLang, "Production
metrics" and a recorded response of 0.5.23; Text Generation Inference, "Metrics"; Triton's
tensorrtllm_backend, "Triton Metrics" and `custom_metrics_reporter.cc`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class EngineSeries:
    """The series that contain the value of a field.

    Attributes:
        name: the name of the samples, including `_total`.
        where: required labels. Values are summed over all other labels.
        over: the series by which the value is divided.
    """

    name: str
    where: Mapping[str, str] = field(default_factory=dict)
    over: "EngineSeries | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTable:
    """The table of one kind of engine.

    Attributes:
        engine_labels: labels with the engine's number. Without such a label, the number is 0.
        rank_labels: labels of an engine's workers. Each worker reports values of the whole engine,
            and the highest value is used.
        fields: maps each field of `EngineSample` to its alternative series.
    """

    name: str
    engine_labels: tuple[str, ...] = ()
    model_label: str | None = None
    rank_labels: frozenset[str] = frozenset()
    fields: Mapping[str, tuple[EngineSeries, ...]]


def _vllm(*names: str) -> tuple[EngineSeries, ...]:
    return tuple(EngineSeries(f"vllm:{name}") for name in names)


def _by_source(source: str) -> EngineSeries:
    return EngineSeries("vllm:prompt_tokens_by_source_total", {"source": source})


def _by_tier(tier: str) -> EngineSeries:
    return EngineSeries("vllm:prompt_tokens_cached_by_source_total", {"source": tier})


def _deprecated(what: str, direction: str) -> EngineSeries:
    return EngineSeries(f"vllm:kv_offload_total_{what}_total", {"transfer_type": direction})


VLLM: Final = EngineTable(
    name="vLLM",
    engine_labels=("engine",),
    model_label="model_name",
    fields={
        "waiting": _vllm("num_requests_waiting"),
        "running": _vllm("num_requests_running"),
        "deferred": (EngineSeries("vllm:num_requests_waiting_by_reason", {"reason": "deferred"}),),
        "fetching_kv": _vllm("num_requests_kv_fetch_by_stage"),
        "kv_usage_ratio": _vllm("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        "prefill_tokens_total": (_by_source("local_compute"), *_vllm("prompt_tokens_total")),
        "local_cached_prompt_tokens_total": (_by_source("local_cache_hit"),),
        "external_cached_prompt_tokens_total": (_by_source("external_kv_transfer"),),
        "decode_tokens_total": _vllm("generation_tokens_total"),
        "prefix_cache_queries_tokens_total": _vllm(
            "prefix_cache_queries_total", "gpu_prefix_cache_queries_total"
        ),
        "prefix_cache_hits_tokens_total": _vllm(
            "prefix_cache_hits_total", "gpu_prefix_cache_hits_total"
        ),
        "external_cache_queries_tokens_total": _vllm("external_prefix_cache_queries_total"),
        "external_cache_hits_tokens_total": _vllm("external_prefix_cache_hits_total"),
        "host_cache_hits_tokens_total": (_by_tier("host"),),
        "p2p_cache_hits_tokens_total": (_by_tier("p2p"),),
        "disk_cache_hits_tokens_total": (_by_tier("disk"),),
        # The names with `transfer_type` are deprecated. Newer versions of vLLM send the old and the
        # new names.
        "kv_offload_load_bytes_total": (
            *_vllm("kv_offload_load_bytes_total"),
            _deprecated("bytes", "CPU_to_GPU"),
        ),
        "kv_offload_load_s_total": (
            *_vllm("kv_offload_load_time_total"),
            _deprecated("time", "CPU_to_GPU"),
        ),
        "kv_offload_store_bytes_total": (
            *_vllm("kv_offload_store_bytes_total"),
            _deprecated("bytes", "GPU_to_CPU"),
        ),
        "kv_offload_store_s_total": (
            *_vllm("kv_offload_store_time_total"),
            _deprecated("time", "GPU_to_CPU"),
        ),
        "kv_offload_store_failures_total": _vllm("kv_offload_allocation_failure_total"),
        "kv_offload_lookup_s_total": _vllm("kv_offload_lookup_sync_delay_seconds_sum"),
        "kv_tier_read_bytes_total": _vllm("kv_offload_tiering_read_bytes_total"),
        "kv_tier_read_s_total": _vllm("kv_offload_tiering_read_time_total"),
        "kv_tier_write_bytes_total": _vllm("kv_offload_tiering_write_bytes_total"),
        "kv_tier_write_s_total": _vllm("kv_offload_tiering_write_time_total"),
        "mm_cache_queries_total": _vllm("mm_cache_queries_total"),
        "mm_cache_hits_total": _vllm("mm_cache_hits_total"),
        "preemptions_total": _vllm("num_preemptions_total"),
        "drafts_total": _vllm("spec_decode_num_drafts_total"),
        "draft_tokens_total": _vllm("spec_decode_num_draft_tokens_total"),
        "accepted_tokens_total": _vllm("spec_decode_num_accepted_tokens_total"),
        "modelled_flops_total": _vllm("estimated_flops_per_gpu_total"),
        "modelled_read_bytes_total": _vllm("estimated_read_bytes_per_gpu_total"),
        "modelled_write_bytes_total": _vllm("estimated_write_bytes_per_gpu_total"),
    },
)

SGLANG: Final = EngineTable(
    name="SGLang",
    engine_labels=("dp_rank",),
    model_label="model_name",
    rank_labels=frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"}),
    fields={
        "waiting": (EngineSeries("sglang:num_queue_reqs"),),
        "running": (EngineSeries("sglang:num_running_reqs"),),
        "kv_usage_ratio": (EngineSeries("sglang:token_usage"),),
        "prefill_tokens_total": (
            EngineSeries("sglang:realtime_tokens_total", {"mode": "prefill_compute"}),
            EngineSeries("sglang:prompt_tokens_total"),
        ),
        "decode_tokens_total": (EngineSeries("sglang:generation_tokens_total"),),
        # SGLang looks up every prompt token in its radix cache.
        "prefix_cache_queries_tokens_total": (EngineSeries("sglang:prompt_tokens_total"),),
        "prefix_cache_hits_tokens_total": (EngineSeries("sglang:cached_tokens_total"),),
        "preemptions_total": (
            EngineSeries("sglang:num_retracted_requests_total"),
            EngineSeries("sglang:num_retracted_reqs_total"),
        ),
    },
)

TGI: Final = EngineTable(
    name="Text Generation Inference",
    fields={
        "waiting": (EngineSeries("tgi_queue_size"),),
        "running": (EngineSeries("tgi_batch_current_size"),),
        "prefill_tokens_total": (EngineSeries("tgi_request_input_length_sum"),),
        "decode_tokens_total": (EngineSeries("tgi_request_generated_tokens_sum"),),
    },
)


def _blocks(kind: str, over: EngineSeries | None = None) -> EngineSeries:
    return EngineSeries("nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": kind}, over)


def _requests(kind: str) -> EngineSeries:
    return EngineSeries("nv_trt_llm_request_metrics", {"request_type": kind})


TRITON: Final = EngineTable(
    name="TensorRT-LLM on Triton",
    model_label="model",
    fields={
        "waiting": (_requests("waiting"),),
        "running": (_requests("scheduled"),),
        "kv_usage_ratio": (_blocks("used", over=_blocks("max")),),
        "steps_total": (
            EngineSeries("nv_trt_llm_general_metrics", {"general_type": "iteration_counter"}),
        ),
        "prefill_tokens_total": (EngineSeries("nv_llm_input_token_len_sum"),),
        "decode_tokens_total": (EngineSeries("nv_llm_output_token_len_sum"),),
    },
)

ENGINES: Final = (VLLM, SGLANG, TGI, TRITON)

STARTED: Final = "process_start_time_seconds"
"""Start of the server's process, in unix seconds."""


def _series_names(series: EngineSeries) -> set[str]:
    return {series.name} | (_series_names(series.over) if series.over else set())


NAMES: Final = frozenset(
    {STARTED}.union(
        *(
            _series_names(series)
            for table in ENGINES
            for alternatives in table.fields.values()
            for series in alternatives
        )
    )
)
"""Names of all series to read."""
