"""The vocabulary: every span, event, attribute and metric name, spelled once.

What leaves an instrumented vLLM is named here, and every other part of Tailspan reads
its names from here. Where OpenTelemetry's GenAI conventions have a name it is used;
what they lack is `tailspan.`. Durations are seconds, as OpenTelemetry asks.

Source: OpenTelemetry semantic conventions, "GenAI" (in development) and "HTTP".
"""

from typing import Final

SCOPE: Final = "tailspan_vllm"
"""Instrumentation scope of all that `tailspan-vllm` emits."""

# --- Resource -----------------------------------------------------------------------
SERVICE_NAME: Final = "service.name"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
CLOUD_REGION: Final = "cloud.region"
PROCESS_PID: Final = "process.pid"
SIMULATED: Final = "tailspan.simulated"
"""True on a resource that no real server stands behind."""

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
PREEMPTED: Final = "tailspan.part.preempted"
OTHERS_PREFILL: Final = "tailspan.part.others_prefill"
STALL: Final = "tailspan.part.stall"
TTFT: Final = "tailspan.ttft"
ITL_MAX: Final = "tailspan.itl_max"
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

# --- Metrics: gauges --------------------------------------------------------------------
WAITING: Final = "tailspan.engine.requests.waiting"
RUNNING: Final = "tailspan.engine.requests.running"
KV_USAGE: Final = "tailspan.engine.kv_cache.usage"
LONGEST_STEP: Final = "tailspan.engine.step.longest"
# --- Metrics: monotonic sums, counted since the engine started -----------------------------
STEPS: Final = "tailspan.engine.steps"
BUSY_TIME: Final = "tailspan.engine.busy_time"
PREFILL_TOKENS: Final = "tailspan.engine.prefill.tokens"
DECODE_TOKENS: Final = "tailspan.engine.decode.tokens"
PREFIX_CACHE_QUERIES: Final = "tailspan.engine.prefix_cache.queries"
PREFIX_CACHE_HITS: Final = "tailspan.engine.prefix_cache.hits"
EXTERNAL_CACHE_QUERIES: Final = "tailspan.engine.external_prefix_cache.queries"
EXTERNAL_CACHE_HITS: Final = "tailspan.engine.external_prefix_cache.hits"
ENGINE_PREEMPTIONS: Final = "tailspan.engine.preemptions"
# --- Metrics: the instrumentation on itself ------------------------------------------------
SPANS_DROPPED: Final = "tailspan.instrumentation.spans.dropped"
HOOK_FAILURES: Final = "tailspan.instrumentation.hook.failures"
HOOK: Final = "tailspan.hook"

UNITS: Final[dict[str, str]] = {
    WAITING: "{request}",
    RUNNING: "{request}",
    KV_USAGE: "1",
    LONGEST_STEP: "s",
    STEPS: "{step}",
    BUSY_TIME: "s",
    PREFILL_TOKENS: "{token}",
    DECODE_TOKENS: "{token}",
    PREFIX_CACHE_QUERIES: "{token}",
    PREFIX_CACHE_HITS: "{token}",
    EXTERNAL_CACHE_QUERIES: "{token}",
    EXTERNAL_CACHE_HITS: "{token}",
    ENGINE_PREEMPTIONS: "{preemption}",
    SPANS_DROPPED: "{span}",
    HOOK_FAILURES: "{failure}",
}
"""UCUM unit of each metric."""
