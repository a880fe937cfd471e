"""The names of all spans, events, attributes and metrics.

Names that OpenTelemetry's GenAI conventions do not define begin with `tailspan.`. Durations are in
seconds.

Source: OpenTelemetry semantic conventions, "GenAI" (in development) and "HTTP".
"""

from typing import Final

SCOPE: Final = "tailspan_vllm"

# --- Resource -----------------------------------------------------------------------
SERVICE_NAME: Final = "service.name"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
CLOUD_REGION: Final = "cloud.region"
PROCESS_PID: Final = "process.pid"
SIMULATED: Final = "tailspan.simulated"
"""True if the data is simulated."""

# --- Span attributes from the conventions ---------------------------------------------
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_INPUT_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS_CODE: Final = "http.response.status_code"
ERROR_TYPE: Final = "error.type"

PROVIDER_VLLM: Final = "vllm"

# --- Span attributes of Tailspan ------------------------------------------------------
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
"""Parts of the queue phase, in the order of `parts.RequestQueueParts`."""
HELD_PARTS: Final = (
    "tailspan.queue.held.kv_load",
    "tailspan.queue.held.grammar",
    "tailspan.queue.held.adapter",
)
"""Parts of `tailspan.queue.held`, in the order of `parts.HeldParts`. Their sum can be smaller than
`tailspan.queue.held`."""
PREFILL_PARTS: Final = (
    "tailspan.prefill.own",
    "tailspan.prefill.others_prefill",
    "tailspan.prefill.others_decode",
    "tailspan.prefill.preempted",
    "tailspan.prefill.stall",
)
ENCODER: Final = "tailspan.prefill.own.encoder"
"""The part of `tailspan.prefill.own` that the encoder took."""
DECODE_PARTS: Final = (
    "tailspan.decode.own",
    "tailspan.decode.others_prefill",
    "tailspan.decode.others_decode",
    "tailspan.decode.preempted",
    "tailspan.decode.stall",
)
EXTERNAL_CACHED_TOKENS: Final = "tailspan.cache_read.external_tokens"
EXTERNAL_CACHED_BYTES: Final = "tailspan.cache_read.external_bytes"
EXTERNAL_CACHE_TIER: Final = "tailspan.cache_read.external_tier"
PREFIX_LADDER: Final = "tailspan.prefix_ladder"
TTFT: Final = "tailspan.ttft"
TTFC: Final = "tailspan.ttfc"
TOOL_CALL_TOKENS: Final = "tailspan.usage.tool_call_tokens"
CONTENT_TOKENS: Final = "tailspan.usage.content_tokens"
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
FIRST_CONTENT: Final = "tailspan.first_content"
LAST_TOKEN: Final = "tailspan.last_token"
PREEMPTION: Final = "tailspan.preempted"
RESUMPTION: Final = "tailspan.resumed"

# --- Spans: one start of an engine, from the start of the process until the server was ready -----
START: Final = "tailspan.start"
START_SCHEDULING: Final = "tailspan.start.scheduling"
START_IMAGE_PULL: Final = "tailspan.start.image_pull"
START_INIT_CONTAINERS: Final = "tailspan.start.init_containers"
START_CONTAINER: Final = "tailspan.start.container"
START_IMPORTS: Final = "tailspan.start.imports"
START_CONFIG: Final = "tailspan.start.config"
START_ENGINE_PROCESS: Final = "tailspan.start.engine_process"
START_WORKERS: Final = "tailspan.start.workers"
START_DEVICE: Final = "tailspan.start.device"
START_WEIGHTS: Final = "tailspan.start.weights"
START_COMPILE: Final = "tailspan.start.compile"
START_WARM_UP: Final = "tailspan.start.warm_up"
START_KV_CACHE: Final = "tailspan.start.kv_cache"
START_UNSPLIT: Final = "tailspan.start.unsplit"
START_SERVER: Final = "tailspan.start.server"
START_REACHED: Final = "tailspan.start.reached"
START_FAILURE: Final = "tailspan.start.failure"

# --- Events -----------------------------------------------------------------------------
ENGINE_STARTED: Final = "tailspan.engine.started"
EVENT_NAME: Final = "event.name"
"""Attribute: an event's name, in OTLP versions without a field for it."""
REQUEST_IN_FLIGHT: Final = "tailspan.request.in_flight"
"""An event with the ids that the request's span will have."""
IN_FLIGHT_AGE: Final = "tailspan.request.age"
ENGINE_VERSION: Final = "tailspan.engine.version"
ARGUMENT: Final = "tailspan.argument."
"""Prefix of an engine argument's name, as in `tailspan.argument.scheduler.max_num_seqs`."""
DEVICE: Final = "tailspan.device.name"
GPUS: Final = "tailspan.device.count"
LOADING: Final = "tailspan.engine.loading_time"
SHAPE: Final = "tailspan.model."
"""Prefix of a value of the model's shape, as in `tailspan.model.num_hidden_layers`."""

UNITS: Final[dict[str, str]] = {}
GPU_UNITS: Final[dict[str, str]] = {}


def _metric(name: str, unit: str) -> str:
    UNITS[name] = unit
    return name


def _gpu_metric(name: str, unit: str) -> str:
    GPU_UNITS[name] = unit
    return name


# --- Metrics: gauges --------------------------------------------------------------------
WAITING: Final = _metric("tailspan.engine.requests.waiting", "{request}")
RUNNING: Final = _metric("tailspan.engine.requests.running", "{request}")
DEFERRED: Final = _metric("tailspan.engine.requests.deferred", "{request}")
"""Waiting requests that are not yet allowed to join the batch."""
FETCHING_KV: Final = _metric("tailspan.engine.requests.fetching_kv", "{request}")
"""Waiting requests whose KV cache is being fetched from outside the engine."""
IN_FLIGHT: Final = _metric("tailspan.engine.requests.in_flight", "{request}")
OLDEST_REQUEST_AGE: Final = _metric("tailspan.engine.requests.oldest_age", "s")
LAST_STEP_AGE: Final = _metric("tailspan.engine.step.last_age", "s")
UNFINISHED_GAUGES: Final = (IN_FLIGHT, OLDEST_REQUEST_AGE, LAST_STEP_AGE)
"""Gauges of unfinished requests. A front end reports them even while the engine hangs."""
KV_USAGE: Final = _metric("tailspan.engine.kv_cache.usage", "1")
WAITING_LORAS: Final = _metric("tailspan.engine.lora.waiting", "{request}")
RUNNING_LORAS: Final = _metric("tailspan.engine.lora.running", "{request}")
LONGEST_STEP: Final = _metric("tailspan.engine.step.longest", "s")
STEP_MODEL: Final = (
    _metric("tailspan.engine.step_model.base", "s"),
    _metric("tailspan.engine.step_model.per_prefill_token", "s"),
    _metric("tailspan.engine.step_model.per_prefill_attention", "s"),
    _metric("tailspan.engine.step_model.per_context_token", "s"),
    _metric("tailspan.engine.step_model.per_decode", "s"),
    _metric("tailspan.engine.step_model.per_prefill_step", "s"),
)
"""The coefficients γ, α, κ, β, δ, λ of the step model."""
STEP_MODEL_ERROR: Final = _metric("tailspan.engine.step_model.error", "1")
STEP_MODEL_R_SQUARED: Final = _metric("tailspan.engine.step_model.r_squared", "1")
HOST_CPUS: Final = _metric("tailspan.host.cpus", "{cpu}")
# --- Metrics: monotonic sums, counted since the engine started -----------------------------
STEPS: Final = _metric("tailspan.engine.steps", "{step}")
PREFILL_STEPS: Final = _metric("tailspan.engine.prefill.steps", "{step}")
BUSY_TIME: Final = _metric("tailspan.engine.busy_time", "s")
STALL_TIME: Final = _metric("tailspan.engine.stall_time", "s")
SCHEDULED_PREFILL_TOKENS: Final = _metric("tailspan.engine.prefill.scheduled", "{token}")
PREFILL_ATTENTION: Final = _metric("tailspan.engine.prefill.attention", "{pair}")
CONTEXT_TOKENS: Final = _metric("tailspan.engine.decode.context", "{token}")
SCHEDULED_DECODES: Final = _metric("tailspan.engine.decode.scheduled", "{sequence}")
LEDGER_COUNTERS: Final = (
    STEPS,
    PREFILL_STEPS,
    BUSY_TIME,
    STALL_TIME,
    SCHEDULED_PREFILL_TOKENS,
    PREFILL_ATTENTION,
    CONTEXT_TOKENS,
    SCHEDULED_DECODES,
)
PREFILL_TOKENS: Final = _metric("tailspan.engine.prefill.tokens", "{token}")
DECODE_TOKENS: Final = _metric("tailspan.engine.decode.tokens", "{token}")
PREFIX_CACHE_QUERIES: Final = _metric("tailspan.engine.prefix_cache.queries", "{token}")
PREFIX_CACHE_HITS: Final = _metric("tailspan.engine.prefix_cache.hits", "{token}")
EXTERNAL_CACHE_QUERIES: Final = _metric("tailspan.engine.external_prefix_cache.queries", "{token}")
EXTERNAL_CACHE_HITS: Final = _metric("tailspan.engine.external_prefix_cache.hits", "{token}")
LOCAL_CACHED_PROMPT_TOKENS: Final = _metric("tailspan.engine.prompt.cached_local", "{token}")
EXTERNAL_CACHED_PROMPT_TOKENS: Final = _metric("tailspan.engine.prompt.cached_external", "{token}")
KV_TRANSFER_BYTES: Final = _metric("tailspan.engine.kv_transfer.bytes", "By")
KV_TRANSFER_TIME: Final = _metric("tailspan.engine.kv_transfer.time", "s")
KV_OFFLOAD_LOAD_BYTES: Final = _metric("tailspan.engine.kv_offload.load.bytes", "By")
KV_OFFLOAD_LOAD_TIME: Final = _metric("tailspan.engine.kv_offload.load.time", "s")
KV_OFFLOAD_STORE_BYTES: Final = _metric("tailspan.engine.kv_offload.store.bytes", "By")
KV_OFFLOAD_STORE_TIME: Final = _metric("tailspan.engine.kv_offload.store.time", "s")
KV_OFFLOAD_STORE_FAILURES: Final = _metric("tailspan.engine.kv_offload.store.failures", "{store}")
KV_OFFLOAD_LOOKUP_TIME: Final = _metric("tailspan.engine.kv_offload.lookup.time", "s")
KV_TIER_READ_BYTES: Final = _metric("tailspan.engine.kv_offload.tier.read_bytes", "By")
KV_TIER_READ_TIME: Final = _metric("tailspan.engine.kv_offload.tier.read_time", "s")
KV_TIER_WRITE_BYTES: Final = _metric("tailspan.engine.kv_offload.tier.write_bytes", "By")
KV_TIER_WRITE_TIME: Final = _metric("tailspan.engine.kv_offload.tier.write_time", "s")
HOST_CACHE_HITS: Final = _metric("tailspan.engine.external_prefix_cache.hits.host", "{token}")
P2P_CACHE_HITS: Final = _metric("tailspan.engine.external_prefix_cache.hits.p2p", "{token}")
DISK_CACHE_HITS: Final = _metric("tailspan.engine.external_prefix_cache.hits.disk", "{token}")
MM_CACHE_QUERIES: Final = _metric("tailspan.engine.mm_cache.queries", "{item}")
MM_CACHE_HITS: Final = _metric("tailspan.engine.mm_cache.hits", "{item}")
KV_TRANSFER_FAILURES: Final = _metric("tailspan.engine.kv_transfer.failures", "{transfer}")
ENGINE_PREEMPTIONS: Final = _metric("tailspan.engine.preemptions", "{preemption}")
DRAFTS: Final = _metric("tailspan.engine.speculation.drafts", "{draft}")
DRAFT_TOKENS: Final = _metric("tailspan.engine.speculation.draft_tokens", "{token}")
ACCEPTED_TOKENS: Final = _metric("tailspan.engine.speculation.accepted_tokens", "{token}")
MODELLED_FLOPS: Final = _metric("tailspan.engine.modelled.flops", "{flop}")
MODELLED_READ_BYTES: Final = _metric("tailspan.engine.modelled.read_bytes", "By")
MODELLED_WRITE_BYTES: Final = _metric("tailspan.engine.modelled.write_bytes", "By")
PROCESS_CPU_TIME: Final = _metric("tailspan.process.cpu_time", "s")
CORE_CPU_TIME: Final = _metric("tailspan.engine.cpu_time", "s")
HOST_BUSY_TIME: Final = _metric("tailspan.host.cpu.busy_time", "s")
HOST_STEAL_TIME: Final = _metric("tailspan.host.cpu.steal_time", "s")
# --- Metrics of the instrumentation itself --------------------------------------------------
SPANS_DROPPED: Final = _metric("tailspan.instrumentation.spans.dropped", "{span}")
DROP_REASON: Final = "tailspan.drop.reason"
UNAUTHENTICATED: Final = "unauthenticated"
"""The drop reason of requests that the server answered with 401 or 403."""
HOOK_FAILURES: Final = _metric("tailspan.instrumentation.hook.failures", "{failure}")
HOOK: Final = "tailspan.hook"
ACCOUNTS_DROPPED: Final = _metric("tailspan.instrumentation.accounts.dropped", "{account}")

# --- Metrics of GPUs, reported by a separate sampler ----------------------------------------
GPU: Final = "hw.id"
GPU_MODEL: Final = "hw.model"
GPU_SOURCE: Final = "tailspan.gpu.source"
GPU_THROTTLE_REASONS: Final = "tailspan.gpu.throttle_reasons"
GPU_DRAM_UTILIZATION: Final = _gpu_metric("tailspan.gpu.dram.utilization", "1")
"""Share of the peak bandwidth. `hw.gpu.memory.utilization` is the share of the capacity."""
GPU_DRAM_BANDWIDTH: Final = _gpu_metric("tailspan.gpu.dram.bandwidth", "By/s")
GPU_SM_ACTIVITY: Final = _gpu_metric("tailspan.gpu.sm.activity", "1")
GPU_TENSOR_ACTIVITY: Final = _gpu_metric("tailspan.gpu.tensor.activity", "1")
GPU_MEMORY_USED: Final = _gpu_metric("tailspan.gpu.memory.used", "By")
GPU_MEMORY_TOTAL: Final = _gpu_metric("tailspan.gpu.memory.total", "By")
GPU_POWER: Final = _gpu_metric("tailspan.gpu.power", "W")
GPU_ENERGY: Final = _gpu_metric("tailspan.gpu.energy", "J")
GPU_SM_CLOCK: Final = _gpu_metric("tailspan.gpu.sm.clock", "Hz")
GPU_SM_CLOCK_MAX: Final = _gpu_metric("tailspan.gpu.sm.clock_max", "Hz")
GPU_MEMORY_CLOCK: Final = _gpu_metric("tailspan.gpu.memory.clock", "Hz")
GPU_THROTTLED: Final = _gpu_metric("tailspan.gpu.throttled", "{reason}")
GPU_FOREIGN_PROCESSES: Final = _gpu_metric("tailspan.gpu.foreign_processes", "{process}")
GPU_PCIE_RECEIVED: Final = _gpu_metric("tailspan.gpu.pcie.received", "By/s")
GPU_PCIE_SENT: Final = _gpu_metric("tailspan.gpu.pcie.sent", "By/s")
GPU_NVLINK_RECEIVED: Final = _gpu_metric("tailspan.gpu.nvlink.received", "By/s")
GPU_NVLINK_SENT: Final = _gpu_metric("tailspan.gpu.nvlink.sent", "By/s")

# --- Spans of the prober --------------------------------------------------------------
PROBE_SCOPE: Final = "tailspan.probe"
PROBE_ENDPOINT: Final = "tailspan.probe.endpoint"
PROBE_KIND: Final = "tailspan.probe.kind"
PROBE_OUTCOME: Final = "tailspan.probe.outcome"
PROBE_ERROR: Final = "tailspan.probe.error"
PROBE_TWIN: Final = "tailspan.probe.twin"
PROBE_CACHE: Final = "tailspan.probe.cache"
PROBE_CACHE_RESULT: Final = "tailspan.probe.cache_result"
PROBE_LATE: Final = "tailspan.probe.late"
PROBE_DNS: Final = "tailspan.probe.dns"
PROBE_CONNECT: Final = "tailspan.probe.connect"
PROBE_TLS: Final = "tailspan.probe.tls"
PROBE_WRITTEN: Final = "tailspan.probe.written"
PROBE_FIRST_BYTE: Final = "tailspan.probe.first_byte"
PROBE_FIRST_EVENT: Final = "tailspan.probe.first_event"
PROBE_FIRST_REASONING: Final = "tailspan.probe.first_reasoning"
PROBE_FIRST_CONTENT: Final = "tailspan.probe.first_content"
PROBE_ITL_MAX: Final = "tailspan.probe.itl_max"
PROBE_E2E: Final = "tailspan.probe.e2e"
PROBE_SERVER_QUEUE: Final = "tailspan.probe.server.queue"
PROBE_SERVER_PREFILL: Final = "tailspan.probe.server.prefill"
PROBE_SERVER_DECODE: Final = "tailspan.probe.server.decode"
PROBE_CHUNKS: Final = "tailspan.probe.chunks"
PROBE_COST: Final = "tailspan.probe.cost"
PROBE_CERTIFICATE_END: Final = "tailspan.probe.certificate_end"
