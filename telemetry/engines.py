"""The state of an engine at one instant.

A total (`*_total`) counts from `started_unix_ns`, the start of the engine or of its front end.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from tailspan_vllm import names

from telemetry.fields import (
    CLOCK_AHEAD,
    FRONT_END,
    INSTRUMENTATION,
    ITERATION,
    LEDGER,
    SCHEDULER,
    SYSTEM,
    column,
    metric,
)
from telemetry.requests import Source

MAX_TRACKED: Final = 1_200
"""Maximum number of replicas, of engines and of senders per collector. Five collectors are enough
for 5,000 replicas, even if a hash distributes the replicas unevenly."""
HUNG_S: Final = 60
"""If an engine with requests completes no step for this many seconds, it counts as hung. vLLM uses
the same time (VLLM_RINGBUFFER_WARNING_INTERVAL).

The longest legitimate step takes 20 s. It is a prefill of 128k tokens of a 70B model in one chunk,
on four H100 GPUs. Such a step needs about 4e16 FLOP, at half of the peak of 990 TFLOP/s per GPU.
"""


HUNG_REMEDY: Final = (
    "Check the server's log first, then GPU errors (nvidia-smi; Xid in dmesg). `py-spy dump` of the"
    " EngineCore process shows where it hangs. Then restart the server."
)


# The class has no slots, so that `sample_layouts` can set all fields in one operation.
@dataclass(frozen=True, kw_only=True)
class EngineSample:
    """The state of one engine at one instant, as one process reported it. Unknown values are
    None."""

    replica: Annotated[str, column("text", "The replica.", "resource `service.instance.id`")]
    engine: Annotated[int, column("integer", "Index of the engine.", "the metrics' attributes")]
    process: Annotated[
        int, column("integer", "Id of the reporting process.", "resource `process.pid`")
    ]
    at_unix_ns: Annotated[int, column("ns", "Time of the sample.", "the point's time")]
    started_unix_ns: Annotated[
        int, column("ns", "Start time of the totals.", "the point's start time")
    ]
    simulated: Annotated[
        bool, column("boolean", "Whether the sample is simulated.", "resource `tailspan.simulated`")
    ] = False
    source: Annotated[
        Source | None,
        column(
            "text",
            "Source of the sample: `instrumentation`, `simulator` or `scrape`.",
            "collector",
        ),
    ] = None
    model: Annotated[
        str | None,
        column("text", "The name under which the model is served.", "the metrics' attributes"),
    ] = None
    region: Annotated[str | None, column("text", "The region.", "resource `cloud.region`")] = None
    config: Annotated[
        str | None,
        column(
            "text",
            "Fingerprint of the engine arguments that affect latency.",
            "the metrics' attributes",
        ),
    ] = None
    waiting: Annotated[int | None, metric(names.WAITING, "Waiting requests.", SCHEDULER)] = None
    running: Annotated[int | None, metric(names.RUNNING, "Requests in the batch.", SCHEDULER)] = (
        None
    )
    deferred: Annotated[
        int | None,
        metric(
            names.DEFERRED,
            "Waiting requests that currently cannot be scheduled.",
            SCHEDULER,
        ),
    ] = None
    fetching_kv: Annotated[
        int | None,
        metric(
            names.FETCHING_KV,
            "Waiting requests whose KV cache is being loaded from outside the engine. Absent before"
            " vLLM 0.32 and without a KV connector.",
            SCHEDULER,
        ),
    ] = None
    in_flight: Annotated[
        int | None,
        metric(
            names.IN_FLIGHT,
            "Requests that the front end sent to its engines and that have not ended, without those"
            " of disconnected clients. All engines of a front end have the same count.",
            FRONT_END,
        ),
    ] = None
    oldest_request_age_s: Annotated[
        float | None,
        metric(
            names.OLDEST_REQUEST_AGE,
            "Time since the oldest request in flight was received. 0 without requests in flight.",
            FRONT_END,
        ),
    ] = None
    last_step_age_s: Annotated[
        float | None,
        metric(
            names.LAST_STEP_AGE,
            "The shorter of two times: the time since the engine's last step, and the time for"
            " which the engine has had a request in flight. Absent without a request in flight. The"
            " newest step of any engine counts if the front end cannot attribute its requests to"
            " engines.",
            FRONT_END,
        ),
    ] = None
    kv_usage_ratio: Annotated[
        float | None, metric(names.KV_USAGE, "Share of KV-cache blocks in use.", SCHEDULER)
    ] = None
    waiting_loras: Annotated[
        int | None,
        metric(
            names.WAITING_LORAS,
            "Waiting requests that use an adapter. Absent without adapters.",
            "vLLM's scheduler",
        ),
    ] = None
    running_loras: Annotated[
        int | None,
        metric(names.RUNNING_LORAS, "Requests in the batch that use an adapter.", SCHEDULER),
    ] = None
    longest_step_s: Annotated[
        float | None, metric(names.LONGEST_STEP, "Longest step since the previous sample.", LEDGER)
    ] = None
    step_model_base_s: Annotated[
        float | None,
        metric(
            names.STEP_MODEL[0], "Step model, γ: fixed seconds per step.", LEDGER, rolled_up=True
        ),
    ] = None
    step_model_per_prefill_token_s: Annotated[
        float | None,
        metric(
            names.STEP_MODEL[1],
            "Step model, α: seconds per prompt token computed.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    step_model_per_prefill_attention_s: Annotated[
        float | None,
        metric(
            names.STEP_MODEL[2],
            "Step model, κ: seconds per unit of prefill attention. A chunk of p prompt tokens"
            " after `start` earlier tokens has p·(start + p/2) units.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    step_model_per_context_token_s: Annotated[
        float | None,
        metric(
            names.STEP_MODEL[3],
            "Step model, β: seconds per token of context read by decodes.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    step_model_per_decode_s: Annotated[
        float | None,
        metric(
            names.STEP_MODEL[4],
            "Step model, δ: seconds per decoding sequence.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    step_model_per_prefill_step_s: Annotated[
        float | None,
        metric(
            names.STEP_MODEL[5],
            "Step model, λ: additional seconds to launch a step with prefill.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    step_model_error_ratio: Annotated[
        float | None,
        metric(
            names.STEP_MODEL_ERROR,
            "Typical error of the step model, relative to the prediction, on steps not used for the"
            " fit.",
            LEDGER,
            quantity="number",
        ),
    ] = None
    step_model_r_squared: Annotated[
        float | None,
        metric(
            names.STEP_MODEL_R_SQUARED,
            "Share of the variance that the step model predicts, on steps not used for the fit."
            " Negative for a poor fit.",
            LEDGER,
            quantity="score",
        ),
    ] = None
    steps_total: Annotated[
        int | None, metric(names.STEPS, "Steps taken.", LEDGER, rolled_up=True)
    ] = None
    prefill_steps_total: Annotated[
        int | None, metric(names.PREFILL_STEPS, "Steps with prefill.", LEDGER, rolled_up=True)
    ] = None
    busy_s_total: Annotated[
        float | None, metric(names.BUSY_TIME, "Time in steps.", LEDGER, rolled_up=True)
    ] = None
    stall_s_total: Annotated[
        float | None, metric(names.STALL_TIME, "Step time that no scheduled work explains.", LEDGER)
    ] = None
    scheduled_prefill_tokens_total: Annotated[
        int | None,
        metric(
            names.SCHEDULED_PREFILL_TOKENS,
            "Prompt tokens computed, counted at each step, including partial chunks.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    prefill_attention_total: Annotated[
        float | None,
        metric(
            names.PREFILL_ATTENTION,
            "Attention of the computed prompt tokens, in token pairs (the units of κ).",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    context_tokens_total: Annotated[
        int | None,
        metric(names.CONTEXT_TOKENS, "Tokens of context read by decodes.", LEDGER, rolled_up=True),
    ] = None
    decodes_total: Annotated[
        int | None,
        metric(
            names.SCHEDULED_DECODES,
            "Decoding sequences, counted at each step.",
            LEDGER,
            rolled_up=True,
        ),
    ] = None
    prefill_tokens_total: Annotated[
        int | None,
        metric(
            names.PREFILL_TOKENS,
            "Prompt tokens computed, counted when a prefill is complete. Includes cached tokens"
            " before vLLM 0.16.",
            ITERATION,
        ),
    ] = None
    decode_tokens_total: Annotated[
        int | None, metric(names.DECODE_TOKENS, "Output tokens generated.", ITERATION)
    ] = None
    prefix_cache_queries_tokens_total: Annotated[
        int | None,
        metric(
            names.PREFIX_CACHE_QUERIES,
            "Prompt tokens looked up in the engine's own prefix cache.",
            SCHEDULER,
        ),
    ] = None
    prefix_cache_hits_tokens_total: Annotated[
        int | None,
        metric(
            names.PREFIX_CACHE_HITS,
            "Prompt tokens found in the engine's own prefix cache.",
            SCHEDULER,
        ),
    ] = None
    external_cache_queries_tokens_total: Annotated[
        int | None,
        metric(
            names.EXTERNAL_CACHE_QUERIES,
            "Prompt tokens looked up in a cache outside the engine. Absent without such a cache.",
            SCHEDULER,
        ),
    ] = None
    external_cache_hits_tokens_total: Annotated[
        int | None,
        metric(
            names.EXTERNAL_CACHE_HITS,
            "Prompt tokens found in a cache outside the engine.",
            SCHEDULER,
        ),
    ] = None
    local_cached_prompt_tokens_total: Annotated[
        int | None,
        metric(
            names.LOCAL_CACHED_PROMPT_TOKENS,
            "Prompt tokens from the engine's own cache, counted when a prefill is complete. Absent"
            " before vLLM 0.16.",
            ITERATION,
        ),
    ] = None
    external_cached_prompt_tokens_total: Annotated[
        int | None,
        metric(
            names.EXTERNAL_CACHED_PROMPT_TOKENS,
            "Prompt tokens from a cache outside the engine, counted when a prefill is complete."
            " Absent before vLLM 0.16.",
            ITERATION,
        ),
    ] = None
    kv_transfer_bytes_total: Annotated[
        int | None,
        metric(
            names.KV_TRANSFER_BYTES,
            "Bytes of KV cache that a NIXL or offloading connector transferred, in both"
            " directions.",
            SCHEDULER,
        ),
    ] = None
    kv_transfer_s_total: Annotated[
        float | None,
        metric(
            names.KV_TRANSFER_TIME,
            "Sum of the durations of KV-cache transfers. They may overlap.",
            SCHEDULER,
        ),
    ] = None
    kv_transfer_failures_total: Annotated[
        int | None,
        metric(names.KV_TRANSFER_FAILURES, "KV-cache transfers that failed.", SCHEDULER),
    ] = None
    host_cache_hits_tokens_total: Annotated[
        int | None,
        metric(
            names.HOST_CACHE_HITS,
            "Prompt tokens found outside the engine, in host memory. The counters by tier are"
            " absent before vLLM 0.32, and may sum to less than the external hits.",
            SCHEDULER,
        ),
    ] = None
    p2p_cache_hits_tokens_total: Annotated[
        int | None,
        metric(
            names.P2P_CACHE_HITS,
            "Prompt tokens found outside the engine, in another engine.",
            SCHEDULER,
        ),
    ] = None
    disk_cache_hits_tokens_total: Annotated[
        int | None,
        metric(
            names.DISK_CACHE_HITS,
            "Prompt tokens found outside the engine, on disk.",
            SCHEDULER,
        ),
    ] = None
    kv_offload_load_bytes_total: Annotated[
        int | None,
        metric(
            names.KV_OFFLOAD_LOAD_BYTES,
            "Bytes that the offloading connector loaded to the GPU.",
            SCHEDULER,
        ),
    ] = None
    kv_offload_load_s_total: Annotated[
        float | None,
        metric(
            names.KV_OFFLOAD_LOAD_TIME,
            "Sum of the durations of the connector's loads. They may overlap.",
            SCHEDULER,
        ),
    ] = None
    kv_offload_store_bytes_total: Annotated[
        int | None,
        metric(
            names.KV_OFFLOAD_STORE_BYTES,
            "Bytes that the offloading connector stored from the GPU.",
            SCHEDULER,
        ),
    ] = None
    kv_offload_store_s_total: Annotated[
        float | None,
        metric(
            names.KV_OFFLOAD_STORE_TIME,
            "Sum of the durations of the connector's stores. They may overlap.",
            SCHEDULER,
        ),
    ] = None
    kv_offload_store_failures_total: Annotated[
        int | None,
        metric(
            names.KV_OFFLOAD_STORE_FAILURES,
            "Stores for which the offloading connector found no space.",
            SCHEDULER,
        ),
    ] = None
    kv_offload_lookup_s_total: Annotated[
        float | None,
        metric(
            names.KV_OFFLOAD_LOOKUP_TIME,
            "Time that the scheduler spent in lookups of the offloading connector.",
            SCHEDULER,
        ),
    ] = None
    kv_tier_read_bytes_total: Annotated[
        int | None,
        metric(
            names.KV_TIER_READ_BYTES,
            "Bytes read from secondary tiers (disk, object store, peers) to host memory.",
            SCHEDULER,
        ),
    ] = None
    kv_tier_read_s_total: Annotated[
        float | None,
        metric(
            names.KV_TIER_READ_TIME,
            "Sum of the durations of reads from secondary tiers. They may overlap.",
            SCHEDULER,
        ),
    ] = None
    kv_tier_write_bytes_total: Annotated[
        int | None,
        metric(
            names.KV_TIER_WRITE_BYTES,
            "Bytes written from host memory to secondary tiers.",
            SCHEDULER,
        ),
    ] = None
    kv_tier_write_s_total: Annotated[
        float | None,
        metric(
            names.KV_TIER_WRITE_TIME,
            "Sum of the durations of writes to secondary tiers. They may overlap.",
            SCHEDULER,
        ),
    ] = None
    mm_cache_queries_total: Annotated[
        int | None,
        metric(
            names.MM_CACHE_QUERIES,
            "Images, videos and audio clips looked up in the front end's multimodal cache. Absent"
            " for models without such input.",
            SCHEDULER,
        ),
    ] = None
    mm_cache_hits_total: Annotated[
        int | None,
        metric(
            names.MM_CACHE_HITS,
            "Images, videos and audio clips found in the multimodal cache.",
            SCHEDULER,
        ),
    ] = None
    preemptions_total: Annotated[
        int | None, metric(names.ENGINE_PREEMPTIONS, "Preemptions.", ITERATION)
    ] = None
    drafts_total: Annotated[int | None, metric(names.DRAFTS, "Speculative drafts.", SCHEDULER)] = (
        None
    )
    draft_tokens_total: Annotated[
        int | None, metric(names.DRAFT_TOKENS, "Tokens drafted.", SCHEDULER)
    ] = None
    accepted_tokens_total: Annotated[
        int | None, metric(names.ACCEPTED_TOKENS, "Drafted tokens accepted.", SCHEDULER)
    ] = None
    modelled_flops_total: Annotated[
        float | None,
        metric(
            names.MODELLED_FLOPS,
            "FLOPs per GPU, estimated by vLLM with `--enable-mfu-metrics`.",
            SCHEDULER,
        ),
    ] = None
    modelled_read_bytes_total: Annotated[
        float | None,
        metric(
            names.MODELLED_READ_BYTES,
            "Bytes read from memory per GPU, estimated by vLLM with `--enable-mfu-metrics`.",
            SCHEDULER,
        ),
    ] = None
    modelled_write_bytes_total: Annotated[
        float | None,
        metric(
            names.MODELLED_WRITE_BYTES,
            "Bytes written to memory per GPU, estimated by vLLM with `--enable-mfu-metrics`.",
            SCHEDULER,
        ),
    ] = None
    host_cpus: Annotated[
        int | None,
        metric(
            names.HOST_CPUS,
            "The machine's processors. Processor metrics are reported on Linux only.",
            SYSTEM,
        ),
    ] = None
    process_cpu_s_total: Annotated[
        float | None,
        metric(
            names.PROCESS_CPU_TIME,
            "Processor time of the reporting process, such as the API server. Equal for all engines"
            " of the process.",
            SYSTEM,
        ),
    ] = None
    core_cpu_s_total: Annotated[
        float | None,
        metric(
            names.CORE_CPU_TIME,
            "Processor time of the engine core's process, which may be the reporting process.",
            SYSTEM,
        ),
    ] = None
    host_cpu_busy_s_total: Annotated[
        float | None,
        metric(
            names.HOST_BUSY_TIME,
            "Busy time summed over the machine's processors, without steal time.",
            SYSTEM,
        ),
    ] = None
    host_cpu_steal_s_total: Annotated[
        float | None,
        metric(
            names.HOST_STEAL_TIME,
            "Time for which a hypervisor withheld processors from this machine.",
            SYSTEM,
        ),
    ] = None
    spans_dropped_total: Annotated[
        int | None,
        metric(
            names.SPANS_DROPPED,
            "Requests that could not be reported, by `tailspan.drop.reason`. Equal for all engines"
            " of the process.",
            INSTRUMENTATION,
        ),
    ] = None
    hook_failures_total: Annotated[
        int | None,
        metric(
            names.HOOK_FAILURES,
            "Failures inside the instrumentation, by `tailspan.hook`: exceptions, refused"
            " connections, dropped messages. They do not affect vLLM.",
            INSTRUMENTATION,
        ),
    ] = None
    accounts_dropped_total: Annotated[
        int | None,
        metric(
            names.ACCOUNTS_DROPPED,
            "Accounts (the step ledger's result for one request) that front ends did not receive,"
            " summed over all front ends: a front end read too slowly, or the engine core could not"
            " track a request.",
            INSTRUMENTATION,
        ),
    ] = None
    clock_ahead_s: Annotated[float | None, CLOCK_AHEAD] = None
