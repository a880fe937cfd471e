"""Converts a request's record to an OpenTelemetry span.

This code runs on the reading thread. The SDK's span class validates and locks every value, which
takes longer than all other work for a request. The classes in this module have only the attributes
that encoders read.
"""

import random
from operator import attrgetter
from typing import Any, Final, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.span import TraceState

from tailspan_vllm import names
from tailspan_vllm.request import phases
from tailspan_vllm.request.record import RequestRecord

SCOPE: Final = InstrumentationScope(names.SCOPE)
_UNSET = Status(StatusCode.UNSET)
_ERROR = Status(StatusCode.ERROR)
_NO_STATE = TraceState()


class _Instant:
    __slots__ = ("name", "timestamp")
    attributes = None
    dropped_attributes = 0

    def __init__(self, name: str, timestamp: int) -> None:
        self.name = name
        self.timestamp = timestamp


class _Context:
    __slots__ = ("is_remote", "span_id", "trace_flags", "trace_id")
    trace_state = _NO_STATE

    def __init__(self, trace_id: int, span_id: int, trace_flags: int, is_remote: bool) -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.trace_flags = trace_flags
        self.is_remote = is_remote


class _Span:
    __slots__ = (
        "attributes",
        "context",
        "end_time",
        "events",
        "name",
        "parent",
        "resource",
        "start_time",
        "status",
    )
    kind = SpanKind.SERVER
    instrumentation_scope = SCOPE
    links = ()
    dropped_attributes = dropped_events = dropped_links = 0

    def __init__(self, record: RequestRecord, resource: Resource) -> None:
        trace_id, flags = record.trace_id, record.trace_flags
        self.context = _Context(
            trace_id or random.getrandbits(128),
            record.span_id or random.getrandbits(64),
            flags,
            False,
        )
        self.parent = (
            _Context(trace_id, record.parent_span_id, flags, True)
            if trace_id and record.parent_span_id
            else None
        )
        self.name = f"{record.operation} {record.model}" if record.model else record.operation
        self.resource = resource
        self.attributes = _attributes(record)
        self.events = _events(record)
        self.status = _ERROR if record.outcome == "error" else _UNSET
        self.start_time = _wall_ns(record, record.received)
        self.end_time = _wall_ns(record, record.delivered)

    def get_span_context(self) -> _Context:
        return self.context


def span_of(record: RequestRecord, resource: Resource) -> ReadableSpan:
    """The span of a request. Timestamps become events, and phases become attributes."""
    return cast("ReadableSpan", _Span(record, resource))


def _wall_ns(record: RequestRecord, instant: float) -> int:
    return record.wall_offset_ns + round(instant * 1e9)


_AS_RECORDED: Final = {
    names.OPERATION_NAME: "operation",
    names.REQUEST_MODEL: "model",
    names.RESPONSE_ID: "request_id",
    names.INPUT_TOKENS: "prompt_tokens",
    names.OUTPUT_TOKENS: "output_tokens",
    names.REASONING_OUTPUT_TOKENS: "reasoning_tokens",
    names.TOOL_CALL_TOKENS: "tool_call_tokens",
    names.CONTENT_TOKENS: "content_tokens",
    names.CACHE_READ_INPUT_TOKENS: "cached_tokens",
    names.CACHE_WRITE_INPUT_TOKENS: "cache_write_tokens",
    names.EXTERNAL_CACHED_TOKENS: "external_cached_tokens",
    names.PREFIX_LADDER: "prefix_ladder",
    names.HTTP_ROUTE: "route",
    names.HTTP_STATUS_CODE: "http_status",
    names.ERROR_TYPE: "error_type",
    names.OUTCOME: "outcome",
    names.BASIS: "basis",
    names.STREAMED: "streamed",
    names.TENANT: "tenant",
    names.LORA: "lora",
    names.CONFIG: "config",
    names.ENGINE: "engine",
    names.ITL_MAX: "itl_max_s",
    names.REPORTED_IN_FLIGHT: "reported_in_flight_s",
    names.OTHERS_PREFILL_TOKENS_MAX: "others_prefill_tokens_max",
    names.BILLED: "billed_s",
    names.WASTED: "wasted_s",
    names.PREEMPTIONS: "preemptions",
    names.WAITING_AT_ARRIVAL: "waiting_at_arrival",
    names.RUNNING_AT_ARRIVAL: "running_at_arrival",
    names.KV_USAGE_AT_ARRIVAL: "kv_usage_at_arrival",
}

_INSTANTS: Final = {
    names.ARRIVED: "arrived",
    names.QUEUED: "queued",
    names.SCHEDULED: "scheduled",
    names.FIRST_TOKEN: "first_token",
    names.FIRST_BYTE: "first_byte",
    names.FIRST_CONTENT: "first_content",
    names.LAST_TOKEN: "last_token",
}
_instants = attrgetter(*_INSTANTS.values())
_recorded = attrgetter(*_AS_RECORDED.values())
_PHASES: Final = (names.FRONTEND, names.QUEUE, names.PREFILL, names.DECODE, names.DELIVERY)
_AT_THE_FRONT_END: Final = (names.FRONTEND, names.DELIVERY)
"""Phases that are unknown if only the engine core observed the request."""


def _attributes(record: RequestRecord) -> dict[str, Any]:
    attributes: dict[str, Any] = {names.PROVIDER_NAME: names.PROVIDER_VLLM}
    size_bytes, tier = record.kv_load or (None, None)
    if size_bytes is not None:
        attributes[names.EXTERNAL_CACHED_BYTES] = size_bytes
    if tier is not None:
        attributes[names.EXTERNAL_CACHE_TIER] = tier
    for name, value in zip(_AS_RECORDED, _recorded(record), strict=True):
        if value is not None:
            attributes[name] = value
    if record.model is not None:
        attributes[names.RESPONSE_MODEL] = record.model
    if record.streamed:
        attributes[names.REQUEST_STREAM] = True
    finished = record.outcome in ("stop", "length")
    if finished:
        attributes[names.FINISH_REASONS] = (record.outcome,)
    if record.basis != "edge":
        _add_phases(attributes, record)
    # If there is no first token, the first byte belongs to an error message.
    first_seen = record.first_token if record.basis == "engine" else record.first_byte
    begun = record.first_token is not None or (record.basis == "edge" and finished)
    if first_seen is not None and begun:
        attributes[names.TTFT] = first_seen - record.received
        if record.streamed:
            attributes[names.TIME_TO_FIRST_CHUNK] = first_seen - record.received
        if record.first_content is not None:
            attributes[names.TTFC] = record.first_content - record.received
    return attributes


def _add_phases(attributes: dict[str, Any], record: RequestRecord) -> None:
    split = phases.split(
        record.received,
        record.queued,
        record.scheduled,
        record.first_token,
        record.last_token,
        record.delivered,
    )
    unseen = _AT_THE_FRONT_END if record.basis == "engine" and record.arrived is None else ()
    for name, phase_s in zip(_PHASES, split, strict=True):
        if phase_s is not None and name not in unseen:
            attributes[name] = phase_s
    if record.queued is not None and record.handed is not None:
        attributes[names.HANDOFF] = record.queued - record.handed
    for part_names, parts, phase_s in (
        (names.QUEUE_PARTS, record.queue_parts, split.queue_s),
        (names.PREFILL_PARTS, record.prefill_parts, split.prefill_s),
        (names.DECODE_PARTS, record.decode_parts, split.decode_s),
    ):
        if parts is not None and phase_s is not None:
            attributes.update(zip(part_names, parts.scaled_to(phase_s), strict=True))
    queue, prefill = record.queue_parts, record.prefill_parts
    if queue is not None and record.held_parts is not None and split.queue_s is not None:
        scale = _scale(queue.held, queue.scaled_to(split.queue_s).held)
        for name, part_s in zip(names.HELD_PARTS, record.held_parts, strict=True):
            attributes[name] = part_s * scale
    if prefill is not None and record.encoder_s is not None and split.prefill_s is not None:
        own_s = prefill.scaled_to(split.prefill_s).own
        attributes[names.ENCODER] = record.encoder_s * _scale(prefill.own, own_s)


def _scale(measured_s: float, reported_s: float) -> float:
    return reported_s / measured_s if measured_s > 0 else 0.0


def _events(record: RequestRecord) -> list[Event]:
    offset_ns = record.wall_offset_ns
    events = [
        _Instant(name, offset_ns + round(at * 1e9))
        for name, at in zip(_INSTANTS, _instants(record), strict=True)
        if at is not None
    ]
    for name, instants in (
        (names.PREEMPTION, record.preempted_at),
        (names.RESUMPTION, record.resumed_at),
    ):
        events += [_Instant(name, _wall_ns(record, at)) for at in instants]
    return cast("list[Event]", events)
