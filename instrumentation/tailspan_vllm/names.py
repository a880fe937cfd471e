"""The names of all spans, events, attributes and metrics.

The only place that spells them; all other parts of Tailspan import them from here. Names come from
OpenTelemetry's GenAI conventions where those have one, and begin with `tailspan.` otherwise.
Durations are in seconds, as OpenTelemetry recommends.

Source: OpenTelemetry semantic conventions, "GenAI" (in development) and "HTTP".
"""

from typing import Final

SCOPE: Final = "tailspan_vllm"
"""Instrumentation scope of everything that `tailspan-vllm` exports."""

# --- Resource -----------------------------------------------------------------------
SERVICE_NAME: Final = "service.name"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
CLOUD_REGION: Final = "cloud.region"
PROCESS_PID: Final = "process.pid"
SIMULATED: Final = "tailspan.simulated"
"""True on a resource of simulated data."""

# --- Span attributes from the conventions ---------------------------------------------
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS_CODE: Final = "http.response.status_code"
ERROR_TYPE: Final = "error.type"

PROVIDER_VLLM: Final = "vllm"

# --- Span attributes of our own -------------------------------------------------------
OUTCOME: Final = "tailspan.outcome"
BASIS: Final = "tailspan.basis"
STREAMED: Final = "tailspan.streamed"
TENANT: Final = "tailspan.tenant"
LORA: Final = "tailspan.lora"
CONFIG: Final = "tailspan.config"
ENGINE: Final = "tailspan.engine"
FRONTEND: Final = "tailspan.phase.frontend"
QUEUE: Final = "tailspan.phase.queue"
PREFILL: Final = "tailspan.phase.prefill"
DECODE: Final = "tailspan.phase.decode"
DELIVERY: Final = "tailspan.phase.delivery"
HANDOFF: Final = "tailspan.frontend.handoff"
QUEUE_PARTS: Final = (
    "tailspan.queue.seats",
    "tailspan.queue.kv",
    "tailspan.queue.budget",
    "tailspan.queue.held",
    "tailspan.queue.step",
)
"""Parts of the queue phase, in the order of `parts.QueueParts`; they sum to it."""
PREFILL_PARTS: Final = (
    "tailspan.prefill.own",
    "tailspan.prefill.others_prefill",
    "tailspan.prefill.others_decode",
    "tailspan.prefill.preempted",
    "tailspan.prefill.stall",
)
"""Parts of the prefill phase, in the order of `parts.Parts`; they sum to it."""
DECODE_PARTS: Final = (
    "tailspan.decode.own",
    "tailspan.decode.others_prefill",
    "tailspan.decode.others_decode",
    "tailspan.decode.preempted",
    "tailspan.decode.stall",
)
"""Parts of the decode phase, in the order of `parts.Parts`; they sum to it."""
EXTERNAL_CACHED_TOKENS: Final = "tailspan.cache_read.external_tokens"
TTFT: Final = "tailspan.ttft"
ITL_MAX: Final = "tailspan.itl_max"
REPORTED_IN_FLIGHT: Final = "tailspan.request.reported_age"
OTHERS_PREFILL_TOKENS_MAX: Final = "tailspan.others_prefill_tokens_max"
BILLED: Final = "tailspan.engine_time.billed"
WASTED: Final = "tailspan.engine_time.wasted"
PREEMPTIONS: Final = "tailspan.preemptions"
WAITING_AT_ARRIVAL: Final = "tailspan.arrival.waiting"
RUNNING_AT_ARRIVAL: Final = "tailspan.arrival.running"
KV_USAGE_AT_ARRIVAL: Final = "tailspan.arrival.kv_usage"

# --- Span events: the instants between start (received) and end (delivered) -------------
ARRIVED: Final = "tailspan.arrived"
QUEUED: Final = "tailspan.queued"
SCHEDULED: Final = "tailspan.scheduled"
FIRST_TOKEN: Final = "tailspan.first_token"
FIRST_BYTE: Final = "tailspan.first_byte"
LAST_TOKEN: Final = "tailspan.last_token"
PREEMPTION: Final = "tailspan.preempted"
RESUMPTION: Final = "tailspan.resumed"

# --- Events -----------------------------------------------------------------------------
ENGINE_STARTED: Final = "tailspan.engine.started"
EVENT_NAME: Final = "event.name"
"""Attribute with the event's name, for versions of OpenTelemetry's protocol without a field."""
REQUEST_IN_FLIGHT: Final = "tailspan.request.in_flight"
"""Event: a request has not ended. It has the trace id and span id of its later span."""
IN_FLIGHT_AGE: Final = "tailspan.request.age"
ENGINE_VERSION: Final = "tailspan.engine.version"
ARGUMENT: Final = "tailspan.argument."
"""Prefix of an engine argument's name, as in `tailspan.argument.scheduler.max_num_seqs`."""
DEVICE: Final = "tailspan.device.name"
GPUS: Final = "tailspan.device.count"
LOADING: Final = "tailspan.engine.loading_time"
SHAPE: Final = "tailspan.model."
"""Prefix of the model's shape, as in `tailspan.model.num_hidden_layers`."""

# --- Metrics: gauges --------------------------------------------------------------------
WAITING: Final = "tailspan.engine.requests.waiting"
RUNNING: Final = "tailspan.engine.requests.running"
DEFERRED: Final = "tailspan.engine.requests.deferred"
"""Waiting requests that a temporary constraint holds back, such as an adapter's slot."""
FETCHING_KV: Final = "tailspan.engine.requests.fetching_kv"
"""Waiting requests whose KV cache is being fetched from outside the engine."""
IN_FLIGHT: Final = "tailspan.engine.requests.in_flight"
OLDEST_REQUEST_AGE: Final = "tailspan.engine.requests.oldest_age"
LAST_STEP_AGE: Final = "tailspan.engine.step.last_age"
OF_THE_UNFINISHED: Final = (IN_FLIGHT, OLDEST_REQUEST_AGE, LAST_STEP_AGE)
"""Gauges of unfinished requests, which a front end reports even while the engine hangs."""
KV_USAGE: Final = "tailspan.engine.kv_cache.usage"
WAITING_LORAS: Final = "tailspan.engine.lora.waiting"
RUNNING_LORAS: Final = "tailspan.engine.lora.running"
LONGEST_STEP: Final = "tailspan.engine.step.longest"
STEP_MODEL: Final = (
    "tailspan.engine.step_model.base",
    "tailspan.engine.step_model.per_prefill_token",
    "tailspan.engine.step_model.per_prefill_attention",
    "tailspan.engine.step_model.per_context_token",
    "tailspan.engine.step_model.per_decode",
)
"""The coefficients γ, α, κ, β, δ of the step model."""
STEP_MODEL_ERROR: Final = "tailspan.engine.step_model.error"
STEP_MODEL_R_SQUARED: Final = "tailspan.engine.step_model.r_squared"
HOST_CPUS: Final = "tailspan.host.cpus"
# --- Metrics: monotonic sums, counted since the engine started -----------------------------
STEPS: Final = "tailspan.engine.steps"
BUSY_TIME: Final = "tailspan.engine.busy_time"
STALL_TIME: Final = "tailspan.engine.stall_time"
SCHEDULED_PREFILL_TOKENS: Final = "tailspan.engine.prefill.scheduled"
PREFILL_ATTENTION: Final = "tailspan.engine.prefill.attention"
CONTEXT_TOKENS: Final = "tailspan.engine.decode.context"
SCHEDULED_DECODES: Final = "tailspan.engine.decode.scheduled"
OF_THE_LEDGER: Final = (
    STEPS,
    BUSY_TIME,
    STALL_TIME,
    SCHEDULED_PREFILL_TOKENS,
    PREFILL_ATTENTION,
    CONTEXT_TOKENS,
    SCHEDULED_DECODES,
)
"""Totals that the engine core itself counts at each step."""
PREFILL_TOKENS: Final = "tailspan.engine.prefill.tokens"
DECODE_TOKENS: Final = "tailspan.engine.decode.tokens"
PREFIX_CACHE_QUERIES: Final = "tailspan.engine.prefix_cache.queries"
PREFIX_CACHE_HITS: Final = "tailspan.engine.prefix_cache.hits"
EXTERNAL_CACHE_QUERIES: Final = "tailspan.engine.external_prefix_cache.queries"
EXTERNAL_CACHE_HITS: Final = "tailspan.engine.external_prefix_cache.hits"
LOCAL_CACHED_PROMPT_TOKENS: Final = "tailspan.engine.prompt.cached_local"
EXTERNAL_CACHED_PROMPT_TOKENS: Final = "tailspan.engine.prompt.cached_external"
KV_TRANSFER_BYTES: Final = "tailspan.engine.kv_transfer.bytes"
KV_TRANSFER_TIME: Final = "tailspan.engine.kv_transfer.time"
KV_TRANSFER_FAILURES: Final = "tailspan.engine.kv_transfer.failures"
ENGINE_PREEMPTIONS: Final = "tailspan.engine.preemptions"
DRAFTS: Final = "tailspan.engine.speculation.drafts"
DRAFT_TOKENS: Final = "tailspan.engine.speculation.draft_tokens"
ACCEPTED_TOKENS: Final = "tailspan.engine.speculation.accepted_tokens"
MODELLED_FLOPS: Final = "tailspan.engine.modelled.flops"
MODELLED_READ_BYTES: Final = "tailspan.engine.modelled.read_bytes"
MODELLED_WRITE_BYTES: Final = "tailspan.engine.modelled.write_bytes"
PROCESS_CPU_TIME: Final = "tailspan.process.cpu_time"
CORE_CPU_TIME: Final = "tailspan.engine.cpu_time"
HOST_BUSY_TIME: Final = "tailspan.host.cpu.busy_time"
HOST_STEAL_TIME: Final = "tailspan.host.cpu.steal_time"
# --- Metrics of the instrumentation itself --------------------------------------------------
SPANS_DROPPED: Final = "tailspan.instrumentation.spans.dropped"
DROP_REASON: Final = "tailspan.drop.reason"
"""Attribute of dropped spans: the reason."""
UNAUTHENTICATED: Final = "unauthenticated"
"""The drop reason of requests that the server answered with 401 or 403."""
HOOK_FAILURES: Final = "tailspan.instrumentation.hook.failures"
HOOK: Final = "tailspan.hook"
"""Attribute of hook failures: the hook's name."""
ACCOUNTS_DROPPED: Final = "tailspan.instrumentation.accounts.dropped"

# --- Metrics of GPUs, reported by a sampler beside the server -------------------------------
GPU: Final = "hw.id"
GPU_MODEL: Final = "hw.model"
GPU_SOURCE: Final = "tailspan.gpu.source"
GPU_THROTTLE_REASONS: Final = "tailspan.gpu.throttle_reasons"
GPU_DRAM_UTILIZATION: Final = "tailspan.gpu.dram.utilization"
"""Share of the peak bandwidth. OpenTelemetry's `hw.gpu.memory.utilization` is the share of
capacity in use."""
GPU_DRAM_BANDWIDTH: Final = "tailspan.gpu.dram.bandwidth"
GPU_SM_ACTIVITY: Final = "tailspan.gpu.sm.activity"
GPU_TENSOR_ACTIVITY: Final = "tailspan.gpu.tensor.activity"
GPU_MEMORY_USED: Final = "tailspan.gpu.memory.used"
GPU_MEMORY_TOTAL: Final = "tailspan.gpu.memory.total"
GPU_POWER: Final = "tailspan.gpu.power"
GPU_ENERGY: Final = "tailspan.gpu.energy"
GPU_SM_CLOCK: Final = "tailspan.gpu.sm.clock"
GPU_SM_CLOCK_MAX: Final = "tailspan.gpu.sm.clock_max"
GPU_MEMORY_CLOCK: Final = "tailspan.gpu.memory.clock"
GPU_THROTTLED: Final = "tailspan.gpu.throttled"
GPU_FOREIGN_PROCESSES: Final = "tailspan.gpu.foreign_processes"
GPU_PCIE_RECEIVED: Final = "tailspan.gpu.pcie.received"
GPU_PCIE_SENT: Final = "tailspan.gpu.pcie.sent"
GPU_NVLINK_RECEIVED: Final = "tailspan.gpu.nvlink.received"
GPU_NVLINK_SENT: Final = "tailspan.gpu.nvlink.sent"

GPU_UNITS: Final[dict[str, str]] = {
    GPU_DRAM_UTILIZATION: "1",
    GPU_DRAM_BANDWIDTH: "By/s",
    GPU_SM_ACTIVITY: "1",
    GPU_TENSOR_ACTIVITY: "1",
    GPU_MEMORY_USED: "By",
    GPU_MEMORY_TOTAL: "By",
    GPU_POWER: "W",
    GPU_ENERGY: "J",
    GPU_SM_CLOCK: "Hz",
    GPU_SM_CLOCK_MAX: "Hz",
    GPU_MEMORY_CLOCK: "Hz",
    GPU_THROTTLED: "{reason}",
    GPU_FOREIGN_PROCESSES: "{process}",
    GPU_PCIE_RECEIVED: "By/s",
    GPU_PCIE_SENT: "By/s",
    GPU_NVLINK_RECEIVED: "By/s",
    GPU_NVLINK_SENT: "By/s",
}
"""UCUM unit of each metric of a GPU."""

UNITS: Final[dict[str, str]] = {
    WAITING: "{request}",
    RUNNING: "{request}",
    DEFERRED: "{request}",
    FETCHING_KV: "{request}",
    IN_FLIGHT: "{request}",
    OLDEST_REQUEST_AGE: "s",
    LAST_STEP_AGE: "s",
    KV_USAGE: "1",
    WAITING_LORAS: "{request}",
    RUNNING_LORAS: "{request}",
    LONGEST_STEP: "s",
    **dict.fromkeys(STEP_MODEL, "s"),
    STEP_MODEL_ERROR: "1",
    STEP_MODEL_R_SQUARED: "1",
    HOST_CPUS: "{cpu}",
    STEPS: "{step}",
    BUSY_TIME: "s",
    STALL_TIME: "s",
    SCHEDULED_PREFILL_TOKENS: "{token}",
    PREFILL_ATTENTION: "{pair}",
    CONTEXT_TOKENS: "{token}",
    SCHEDULED_DECODES: "{sequence}",
    PREFILL_TOKENS: "{token}",
    DECODE_TOKENS: "{token}",
    PREFIX_CACHE_QUERIES: "{token}",
    PREFIX_CACHE_HITS: "{token}",
    EXTERNAL_CACHE_QUERIES: "{token}",
    EXTERNAL_CACHE_HITS: "{token}",
    LOCAL_CACHED_PROMPT_TOKENS: "{token}",
    EXTERNAL_CACHED_PROMPT_TOKENS: "{token}",
    KV_TRANSFER_BYTES: "By",
    KV_TRANSFER_TIME: "s",
    KV_TRANSFER_FAILURES: "{transfer}",
    ENGINE_PREEMPTIONS: "{preemption}",
    DRAFTS: "{draft}",
    DRAFT_TOKENS: "{token}",
    ACCEPTED_TOKENS: "{token}",
    MODELLED_FLOPS: "{flop}",
    MODELLED_READ_BYTES: "By",
    MODELLED_WRITE_BYTES: "By",
    PROCESS_CPU_TIME: "s",
    CORE_CPU_TIME: "s",
    HOST_BUSY_TIME: "s",
    HOST_STEAL_TIME: "s",
    SPANS_DROPPED: "{span}",
    HOOK_FAILURES: "{failure}",
    ACCOUNTS_DROPPED: "{account}",
}
"""UCUM unit of each metric of an engine."""
