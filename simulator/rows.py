"""Convert simulated telemetry to the rows of `telemetry/`, without the network.

Pure. A record passes through the instrumentation's own span, so that phases, parts and ids are what
a collector would read. A test compares both ways.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, get_args, get_type_hints

from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.record import RequestRecord

from telemetry.engines import EngineSample
from telemetry.requests import (
    DECODE_PARTS,
    FIELDS,
    PHASES,
    PREFILL_PARTS,
    QUEUE_PARTS,
    Basis,
    Outcome,
    RequestTimeline,
    Source,
    request_of_values,
)
from telemetry.starts import EngineStart, written

_OF_A_REQUEST: Final[Mapping[str, str]] = {
    names.RESPONSE_ID: "request_id",
    **dict(
        zip(
            (names.FRONTEND, names.QUEUE, names.PREFILL, names.DECODE, names.DELIVERY),
            PHASES,
            strict=True,
        )
    ),
    **dict(zip(names.QUEUE_PARTS, QUEUE_PARTS, strict=True)),
    **dict(zip(names.PREFILL_PARTS, PREFILL_PARTS, strict=True)),
    **dict(zip(names.DECODE_PARTS, DECODE_PARTS, strict=True)),
    names.HANDOFF: "handoff_s",
    names.TTFT: "ttft_s",
    names.ITL_MAX: "itl_max_s",
    names.OTHERS_PREFILL_TOKENS_MAX: "others_prefill_tokens_max",
    names.OPERATION_NAME: "operation",
    names.REQUEST_MODEL: "model",
    names.LORA: "lora",
    names.HTTP_ROUTE: "route",
    names.TENANT: "tenant",
    names.ENGINE: "engine",
    names.CONFIG: "config",
    names.STREAMED: "streamed",
    names.HTTP_STATUS_CODE: "http_status",
    names.ERROR_TYPE: "error_type",
    names.INPUT_TOKENS: "prompt_tokens",
    names.CACHE_READ_INPUT_TOKENS: "cached_tokens",
    names.EXTERNAL_CACHED_TOKENS: "external_cached_tokens",
    names.OUTPUT_TOKENS: "output_tokens",
    names.BILLED: "billed_s",
    names.WASTED: "wasted_s",
    names.PREEMPTIONS: "preemptions",
    names.WAITING_AT_ARRIVAL: "waiting_at_arrival",
    names.RUNNING_AT_ARRIVAL: "running_at_arrival",
    names.KV_USAGE_AT_ARRIVAL: "kv_usage_at_arrival",
}
_ATTRIBUTES: Final = {field: attribute for attribute, field in _OF_A_REQUEST.items()}
_PLACES: Final = tuple(_ATTRIBUTES.get(field, "") for field in FIELDS)

_OF_AN_ENGINE: Final[Mapping[str, str]] = {
    names.WAITING: "waiting",
    names.RUNNING: "running",
    names.DEFERRED: "deferred",
    names.FETCHING_KV: "fetching_kv",
    names.IN_FLIGHT: "in_flight",
    names.OLDEST_REQUEST_AGE: "oldest_request_age_s",
    names.LAST_STEP_AGE: "last_step_age_s",
    names.KV_USAGE: "kv_usage_ratio",
    names.WAITING_LORAS: "waiting_loras",
    names.RUNNING_LORAS: "running_loras",
    names.LONGEST_STEP: "longest_step_s",
    names.STEP_MODEL[0]: "step_model_base_s",
    names.STEP_MODEL[1]: "step_model_per_prefill_token_s",
    names.STEP_MODEL[2]: "step_model_per_prefill_attention_s",
    names.STEP_MODEL[3]: "step_model_per_context_token_s",
    names.STEP_MODEL[4]: "step_model_per_decode_s",
    names.STEP_MODEL_ERROR: "step_model_error_ratio",
    names.STEP_MODEL_R_SQUARED: "step_model_r_squared",
    names.HOST_CPUS: "host_cpus",
    names.STEPS: "steps_total",
    names.BUSY_TIME: "busy_s_total",
    names.STALL_TIME: "stall_s_total",
    names.SCHEDULED_PREFILL_TOKENS: "scheduled_prefill_tokens_total",
    names.PREFILL_ATTENTION: "prefill_attention_total",
    names.CONTEXT_TOKENS: "context_tokens_total",
    names.SCHEDULED_DECODES: "decodes_total",
    names.PREFILL_TOKENS: "prefill_tokens_total",
    names.DECODE_TOKENS: "decode_tokens_total",
    names.PREFIX_CACHE_QUERIES: "prefix_cache_queries_tokens_total",
    names.PREFIX_CACHE_HITS: "prefix_cache_hits_tokens_total",
    names.EXTERNAL_CACHE_QUERIES: "external_cache_queries_tokens_total",
    names.EXTERNAL_CACHE_HITS: "external_cache_hits_tokens_total",
    names.KV_TRANSFER_BYTES: "kv_transfer_bytes_total",
    names.KV_TRANSFER_TIME: "kv_transfer_s_total",
    names.KV_TRANSFER_FAILURES: "kv_transfer_failures_total",
    names.ENGINE_PREEMPTIONS: "preemptions_total",
    names.DRAFTS: "drafts_total",
    names.DRAFT_TOKENS: "draft_tokens_total",
    names.ACCEPTED_TOKENS: "accepted_tokens_total",
    names.MODELLED_FLOPS: "modelled_flops_total",
    names.MODELLED_READ_BYTES: "modelled_read_bytes_total",
    names.PROCESS_CPU_TIME: "process_cpu_s_total",
    names.CORE_CPU_TIME: "core_cpu_s_total",
    names.HOST_BUSY_TIME: "host_cpu_busy_s_total",
    names.HOST_STEAL_TIME: "host_cpu_steal_s_total",
}
_FLOATS: Final = frozenset(
    name for name, hint in get_type_hints(EngineSample).items() if float in get_args(hint)
)
_NOWHERE: Final = Resource({})


def request_of(record: RequestRecord, number: int, replica: str, region: str) -> RequestTimeline:
    """Return a request's row; `number` makes its ids unique."""
    span: Any = span_of(record, _NOWHERE)
    told = span.attributes
    given: dict[str, object] = {
        "trace_id": f"{span.context.trace_id:032x}",
        "span_id": f"{number + 1:016x}",
        "received_unix_ns": span.start_time,
        "e2e_s": (span.end_time - span.start_time) / 1e9,
        "outcome": Outcome(record.outcome),
        "source": Source.SIMULATOR,
        "basis": Basis(record.basis),
        "replica": replica,
        "region": region,
    }
    return request_of_values(
        given[field] if field in given else told.get(attribute)
        for field, attribute in zip(FIELDS, _PLACES, strict=True)
    )


def sample_of(
    state: EngineState, at_unix_ns: int, process: int, replica: str, region: str
) -> EngineSample:
    """Return an engine's state as a sample."""
    values: dict[str, Any] = {}
    for name, value in (*state.gauges.items(), *state.totals.items()):
        field = _OF_AN_ENGINE[name]
        values[field] = float(value) if field in _FLOATS else int(value)
    return EngineSample(
        replica=replica,
        engine=state.engine,
        process=process,
        at_unix_ns=at_unix_ns,
        started_unix_ns=state.started_unix_ns,
        simulated=True,
        source=Source.SIMULATOR,
        model=state.model,
        region=region,
        config=state.config,
        spans_dropped_total=0,
        **values,
    )


def start_of(state: EngineState, process: int, replica: str, region: str) -> EngineStart:
    """Return the start of an engine."""
    return EngineStart(
        replica=replica,
        engine=state.engine,
        process=process,
        at_unix_ns=state.started_unix_ns,
        config=state.config or "",
        arguments=written(dict(state.arguments)),
        simulated=True,
        model=state.model,
        region=region,
        device=state.machine.device,
        gpus=state.machine.gpus,
        shape=written(state.machine.shape) if state.machine.shape else None,
        loading_s=state.machine.loading_s,
    )


def plain(value: object) -> object:
    """Return a value as a column stores it."""
    return value.value if isinstance(value, StrEnum) else value
