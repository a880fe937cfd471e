"""The series of engines. Most export a field of `EngineSample`."""

from typing import Final

from exporters.definitions.series_types import ENGINE_LABELS, MetricSeries

ENGINE_GAUGES: Final = {
    "waiting": MetricSeries(
        "tailspan_engine_waiting_requests", "Requests in the engine's queue.", ENGINE_LABELS
    ),
    "running": MetricSeries(
        "tailspan_engine_running_requests", "Requests in the engine's batch.", ENGINE_LABELS
    ),
    "in_flight": MetricSeries(
        "tailspan_engine_in_flight_requests",
        "Requests sent to the engine that have not ended, from all front ends. A front end with"
        " several engines reports the same total for each of them: take the maximum over engines,"
        " not the sum.",
        ENGINE_LABELS,
    ),
    "oldest_request_age_s": MetricSeries(
        "tailspan_engine_oldest_request_age_seconds",
        "Time since the oldest request in flight was received; 0 if no request is in flight.",
        ENGINE_LABELS,
    ),
    "last_step_age_s": MetricSeries(
        "tailspan_engine_last_step_age_seconds",
        "Time since the last engine step that a front end with requests in flight received. Absent"
        " if no request is in flight.",
        ENGINE_LABELS,
    ),
    "kv_usage_ratio": MetricSeries(
        "tailspan_engine_kv_cache_usage_ratio",
        "Share of KV-cache blocks in use, 0 to 1.",
        ENGINE_LABELS,
    ),
    "longest_step_s": MetricSeries(
        "tailspan_engine_longest_step_seconds",
        "Longest engine step since the previous sample, in seconds.",
        ENGINE_LABELS,
    ),
    "deferred": MetricSeries(
        "tailspan_engine_deferred_requests",
        "Waiting requests that temporarily cannot be scheduled.",
        ENGINE_LABELS,
    ),
    "fetching_kv": MetricSeries(
        "tailspan_engine_fetching_kv_requests",
        "Waiting requests whose KV cache is being fetched from outside the engine.",
        ENGINE_LABELS,
    ),
    "waiting_loras": MetricSeries(
        "tailspan_engine_waiting_loras",
        "Waiting requests that use a LoRA adapter.",
        ENGINE_LABELS,
    ),
    "running_loras": MetricSeries(
        "tailspan_engine_running_loras",
        "Requests in the batch that use a LoRA adapter.",
        ENGINE_LABELS,
    ),
    "step_model_error_ratio": MetricSeries(
        "tailspan_engine_step_model_error_ratio",
        "Typical relative error of the step durations that the step model predicts, for steps that"
        " were not used to fit the model.",
        ENGINE_LABELS,
    ),
    "step_model_r_squared": MetricSeries(
        "tailspan_engine_step_model_r_squared",
        "Share of the variance of step durations that the step model predicts, for steps that were"
        " not used to fit the model.",
        ENGINE_LABELS,
    ),
    "host_cpus": MetricSeries(
        "tailspan_engine_host_cpus",
        "Number of CPUs of the engine's machine.",
        ENGINE_LABELS,
    ),
}

ROOFLINES: Final = {
    "modelled_bytes_per_s": MetricSeries(
        "tailspan_engine_modelled_bytes_per_second",
        "Upper bound of the bytes per second that each GPU of the engine moved in the last minute,"
        " computed from the model's shape: weights, KV cache, activations.",
        ENGINE_LABELS,
    ),
    "mbu": MetricSeries(
        "tailspan_engine_mbu_ratio",
        "Share of the peak memory bandwidth that the engine's steps needed while they ran, over"
        " the last minute: active weights and KV cache.",
        ENGINE_LABELS,
    ),
    "mfu": MetricSeries(
        "tailspan_engine_mfu_ratio",
        "Share of the peak FLOP/s that the engine's steps needed while they ran, over the last"
        " minute.",
        ENGINE_LABELS,
    ),
}

ENGINE_TOTALS: Final = {
    "steps_total": MetricSeries("tailspan_engine_steps_total", "Engine steps.", ENGINE_LABELS),
    "busy_s_total": MetricSeries(
        "tailspan_engine_busy_seconds_total", "Seconds spent in engine steps.", ENGINE_LABELS
    ),
    "prefill_tokens_total": MetricSeries(
        "tailspan_engine_prefill_tokens_total", "Prompt tokens computed.", ENGINE_LABELS
    ),
    "decode_tokens_total": MetricSeries(
        "tailspan_engine_decode_tokens_total", "Output tokens generated.", ENGINE_LABELS
    ),
    "prefix_cache_queries_tokens_total": MetricSeries(
        "tailspan_engine_prefix_cache_queries_tokens_total",
        "Prompt tokens looked up in the prefix cache.",
        ENGINE_LABELS,
    ),
    "prefix_cache_hits_tokens_total": MetricSeries(
        "tailspan_engine_prefix_cache_hits_tokens_total",
        "Prompt tokens found in the prefix cache.",
        ENGINE_LABELS,
    ),
    "external_cache_queries_tokens_total": MetricSeries(
        "tailspan_engine_external_cache_queries_tokens_total",
        "Prompt tokens looked up in an external KV cache.",
        ENGINE_LABELS,
    ),
    "external_cache_hits_tokens_total": MetricSeries(
        "tailspan_engine_external_cache_hits_tokens_total",
        "Prompt tokens found in an external KV cache.",
        ENGINE_LABELS,
    ),
    "stall_s_total": MetricSeries(
        "tailspan_engine_stall_seconds_total",
        "Step time that the step model does not attribute to scheduled work, in seconds.",
        ENGINE_LABELS,
    ),
    "scheduled_prefill_tokens_total": MetricSeries(
        "tailspan_engine_scheduled_prefill_tokens_total",
        "Prompt tokens scheduled, including tokens computed again after a preemption.",
        ENGINE_LABELS,
    ),
    "prefill_steps_total": MetricSeries(
        "tailspan_engine_prefill_steps_total", "Steps with prefill.", ENGINE_LABELS
    ),
    "local_cached_prompt_tokens_total": MetricSeries(
        "tailspan_engine_local_cached_prompt_tokens_total",
        "Prompt tokens found in the engine's own cache.",
        ENGINE_LABELS,
    ),
    "external_cached_prompt_tokens_total": MetricSeries(
        "tailspan_engine_external_cached_prompt_tokens_total",
        "Prompt tokens that a KV connector loaded from outside the engine.",
        ENGINE_LABELS,
    ),
    "kv_transfer_bytes_total": MetricSeries(
        "tailspan_engine_kv_transfer_bytes_total",
        "Bytes of KV cache that a connector transferred, in both directions.",
        ENGINE_LABELS,
    ),
    "kv_transfer_s_total": MetricSeries(
        "tailspan_engine_kv_transfer_seconds_total",
        "Time of KV-cache transfers in seconds. The durations of overlapping transfers are added.",
        ENGINE_LABELS,
    ),
    "kv_transfer_failures_total": MetricSeries(
        "tailspan_engine_kv_transfer_failures_total",
        "Transfers of KV cache that failed.",
        ENGINE_LABELS,
    ),
    "host_cache_hits_tokens_total": MetricSeries(
        "tailspan_engine_host_cache_hits_tokens_total",
        "Prompt tokens found outside the engine, in host memory.",
        ENGINE_LABELS,
    ),
    "p2p_cache_hits_tokens_total": MetricSeries(
        "tailspan_engine_p2p_cache_hits_tokens_total",
        "Prompt tokens found outside the engine, in another engine.",
        ENGINE_LABELS,
    ),
    "disk_cache_hits_tokens_total": MetricSeries(
        "tailspan_engine_disk_cache_hits_tokens_total",
        "Prompt tokens found outside the engine, on disk.",
        ENGINE_LABELS,
    ),
    "kv_offload_load_bytes_total": MetricSeries(
        "tailspan_engine_kv_offload_load_bytes_total",
        "Bytes of KV cache that the offloading connector loaded to the GPU.",
        ENGINE_LABELS,
    ),
    "kv_offload_load_s_total": MetricSeries(
        "tailspan_engine_kv_offload_load_seconds_total",
        "Time of loads by the offloading connector in seconds. The durations of overlapping loads"
        " are added.",
        ENGINE_LABELS,
    ),
    "kv_offload_store_bytes_total": MetricSeries(
        "tailspan_engine_kv_offload_store_bytes_total",
        "Bytes of KV cache that the offloading connector stored from the GPU.",
        ENGINE_LABELS,
    ),
    "kv_offload_store_s_total": MetricSeries(
        "tailspan_engine_kv_offload_store_seconds_total",
        "Time of stores by the offloading connector in seconds. The durations of overlapping stores"
        " are added.",
        ENGINE_LABELS,
    ),
    "kv_offload_store_failures_total": MetricSeries(
        "tailspan_engine_kv_offload_store_failures_total",
        "Stores for which the offloading connector found no space.",
        ENGINE_LABELS,
    ),
    "kv_offload_lookup_s_total": MetricSeries(
        "tailspan_engine_kv_offload_lookup_seconds_total",
        "Time that the scheduler spent in lookups of the offloading connector, in seconds.",
        ENGINE_LABELS,
    ),
    "kv_tier_read_bytes_total": MetricSeries(
        "tailspan_engine_kv_tier_read_bytes_total",
        "Bytes of KV cache read from secondary tiers to host memory.",
        ENGINE_LABELS,
    ),
    "kv_tier_read_s_total": MetricSeries(
        "tailspan_engine_kv_tier_read_seconds_total",
        "Time of reads from secondary tiers in seconds. The durations of overlapping reads are"
        " added.",
        ENGINE_LABELS,
    ),
    "kv_tier_write_bytes_total": MetricSeries(
        "tailspan_engine_kv_tier_write_bytes_total",
        "Bytes of KV cache written from host memory to secondary tiers.",
        ENGINE_LABELS,
    ),
    "kv_tier_write_s_total": MetricSeries(
        "tailspan_engine_kv_tier_write_seconds_total",
        "Time of writes to secondary tiers in seconds. The durations of overlapping writes are"
        " added.",
        ENGINE_LABELS,
    ),
    "mm_cache_queries_total": MetricSeries(
        "tailspan_engine_mm_cache_queries_total",
        "Images, videos and audio clips looked up in the multimodal cache.",
        ENGINE_LABELS,
    ),
    "mm_cache_hits_total": MetricSeries(
        "tailspan_engine_mm_cache_hits_total",
        "Images, videos and audio clips found in the multimodal cache.",
        ENGINE_LABELS,
    ),
    "drafts_total": MetricSeries(
        "tailspan_engine_drafts_total",
        "Speculative drafts.",
        ENGINE_LABELS,
    ),
    "draft_tokens_total": MetricSeries(
        "tailspan_engine_draft_tokens_total",
        "Tokens of speculative drafts.",
        ENGINE_LABELS,
    ),
    "accepted_tokens_total": MetricSeries(
        "tailspan_engine_accepted_draft_tokens_total",
        "Tokens of speculative drafts that were accepted.",
        ENGINE_LABELS,
    ),
    "modelled_flops_total": MetricSeries(
        "tailspan_engine_modelled_flops_total",
        "FLOPs of each GPU, estimated by vLLM.",
        ENGINE_LABELS,
    ),
    "modelled_read_bytes_total": MetricSeries(
        "tailspan_engine_modelled_read_bytes_total",
        "Bytes read from each GPU's memory, estimated by vLLM.",
        ENGINE_LABELS,
    ),
    "modelled_write_bytes_total": MetricSeries(
        "tailspan_engine_modelled_written_bytes_total",
        "Bytes written to each GPU's memory, estimated by vLLM.",
        ENGINE_LABELS,
    ),
    "process_cpu_s_total": MetricSeries(
        "tailspan_engine_server_cpu_seconds_total",
        "CPU time of the API servers, in seconds. All engines of a process report the same value.",
        ENGINE_LABELS,
    ),
    "core_cpu_s_total": MetricSeries(
        "tailspan_engine_core_cpu_seconds_total",
        "CPU time of the engine core's process, in seconds.",
        ENGINE_LABELS,
    ),
    "host_cpu_busy_s_total": MetricSeries(
        "tailspan_engine_host_cpu_busy_seconds_total",
        "Busy time of all CPUs of the machine, in seconds. All engines of a machine report the"
        " same value.",
        ENGINE_LABELS,
    ),
    "host_cpu_steal_s_total": MetricSeries(
        "tailspan_engine_host_cpu_steal_seconds_total",
        "Time in which a hypervisor withheld CPUs from the machine, in seconds. All engines of a"
        " machine report the same value.",
        ENGINE_LABELS,
    ),
    "preemptions_total": MetricSeries(
        "tailspan_engine_preemptions_total",
        "Preemptions.",
        ENGINE_LABELS,
    ),
    "spans_dropped_total": MetricSeries(
        "tailspan_instrumentation_spans_dropped_total",
        "Requests that the instrumentation did not report. All engines of a process report the"
        " same value: take the maximum over engines, not the sum.",
        ENGINE_LABELS,
    ),
    "hook_failures_total": MetricSeries(
        "tailspan_instrumentation_hook_failures_total",
        "Exceptions inside the instrumentation's hooks, which did not affect the engine. All"
        " engines of a process report the same value: take the maximum over engines, not the sum.",
        ENGINE_LABELS,
    ),
    "accounts_dropped_total": MetricSeries(
        "tailspan_instrumentation_accounts_dropped_total",
        "Messages of the engine core that no front end read in time. All engines of a process"
        " report the same value: take the maximum over engines, not the sum.",
        ENGINE_LABELS,
    ),
}
"""Maps each exported total of `EngineSample` to its counter. Each counter starts at 0 when its
engine starts."""

LAST_SAMPLE: Final = MetricSeries(
    "tailspan_engine_last_sample_timestamp_seconds",
    "Timestamp of the engine's latest sample by the engine's clock, in unix seconds.",
    ENGINE_LABELS,
)

COMMON_TOTALS: Final = frozenset(
    {"core_cpu_s_total", "host_cpu_busy_s_total", "host_cpu_steal_s_total"}
)
"""Totals that are not summed, because every process of an engine reports the same value."""

ENGINE_INFO: Final = MetricSeries(
    "tailspan_engine_info",
    "Always 1. The label config is the fingerprint of the engine's arguments, which `tailspan"
    " config` prints. Join this series with others on model, replica and engine.",
    (*ENGINE_LABELS, "region", "config", "source", "version"),
)
