"""One request as one OpenTelemetry span: record in, span out.

Pure but for the random ids. Runs on the sending thread, never on the server's event loop.
The span is built whole, as it was: OpenTelemetry's tracer times a span while it happens,
and ours is told afterwards. What the encoders read of the SDK's `ReadableSpan` is all there
is of it: the SDK's own classes check and lock what nobody will change any more, and cost
more than everything else that is done to tell of a request.
"""

import random
from typing import Any, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.span import TraceState

from tailspan_vllm import names, phases
from tailspan_vllm.parts import Parts, QueueParts
from tailspan_vllm.record import RequestRecord

_SCOPE = InstrumentationScope(names.SCOPE)
_UNSET = Status(StatusCode.UNSET)
_ERROR = Status(StatusCode.ERROR)
_NO_STATE = TraceState()


class _Instant:
    """An event that has a name and a time."""

    __slots__ = ("name", "timestamp")
    attributes = None
    dropped_attributes = 0

    def __init__(self, name: str, timestamp: int) -> None:
        self.name = name
        self.timestamp = timestamp


class _Context:
    """Which span of which trace."""

    __slots__ = ("is_remote", "span_id", "trace_flags", "trace_id")
    trace_state = _NO_STATE

    def __init__(self, trace_id: int, span_id: int, trace_flags: int, is_remote: bool) -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.trace_flags = trace_flags
        self.is_remote = is_remote


class _Span:
    """One request's span."""

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
    instrumentation_scope = _SCOPE
    links = ()
    dropped_attributes = dropped_events = dropped_links = 0

    def __init__(self, record: RequestRecord, resource: Resource) -> None:
        trace_id, flags = record.trace_id, record.trace_flags
        self.context = _Context(
            trace_id or random.getrandbits(128), random.getrandbits(64), flags, False
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
        """As the SDK's encoder asks for it."""
        return self.context


def span_of(record: RequestRecord, resource: Resource) -> ReadableSpan:
    """The span of one ended request, its instants as events and its phases as attributes."""
    return cast("ReadableSpan", _Span(record, resource))


def _wall_ns(record: RequestRecord, instant: float) -> int:
    return record.wall_offset_ns + round(instant * 1e9)


def _attributes(record: RequestRecord) -> dict[str, Any]:
    split = (
        phases.Phases(None, None, None, None, None)
        if record.basis == "edge"
        else phases.split(
            record.received,
            record.queued,
            record.scheduled,
            record.first_token,
            record.last_token,
            record.delivered,
        )
    )
    finished = record.outcome in ("stop", "length")
    first_seen = record.first_token if record.basis == "engine" else record.first_byte
    begun = record.first_token is not None or (record.basis == "edge" and finished)
    given: dict[str, Any] = {
        names.OPERATION_NAME: record.operation,
        names.PROVIDER_NAME: names.PROVIDER_VLLM,
        names.REQUEST_MODEL: record.model,
        names.RESPONSE_ID: record.request_id,
        names.FINISH_REASONS: (record.outcome,) if finished else None,
        names.INPUT_TOKENS: record.prompt_tokens,
        names.OUTPUT_TOKENS: record.output_tokens,
        names.CACHE_READ_INPUT_TOKENS: record.cached_tokens,
        names.EXTERNAL_CACHED_TOKENS: record.external_cached_tokens,
        names.HTTP_ROUTE: record.route,
        names.HTTP_STATUS_CODE: record.http_status,
        names.ERROR_TYPE: record.error_type,
        names.OUTCOME: record.outcome,
        names.BASIS: record.basis,
        names.STREAMED: record.streamed,
        names.TENANT: record.tenant,
        names.LORA: record.lora,
        names.CONFIG: record.config,
        names.ENGINE: record.engine,
        names.FRONTEND: split.frontend_s,
        names.QUEUE: split.queue_s,
        names.PREFILL: split.prefill_s,
        names.DECODE: split.decode_s,
        names.DELIVERY: split.delivery_s,
        names.HANDOFF: (
            record.queued - record.handed
            if record.queued is not None and record.handed is not None
            else None
        ),
        **_parts(names.QUEUE_PARTS, record.queue_parts, split.queue_s),
        **_parts(names.PREFILL_PARTS, record.prefill_parts, split.prefill_s),
        **_parts(names.DECODE_PARTS, record.decode_parts, split.decode_s),
        # An answer was begun only where a token was made: an error's body has no TTFT.
        names.TTFT: (first_seen - record.received if first_seen is not None and begun else None),
        names.ITL_MAX: record.itl_max_s,
        names.OTHERS_PREFILL_TOKENS_MAX: record.others_prefill_tokens_max,
        names.PREEMPTIONS: record.preemptions,
        names.WAITING_AT_ARRIVAL: record.waiting_at_arrival,
        names.RUNNING_AT_ARRIVAL: record.running_at_arrival,
        names.KV_USAGE_AT_ARRIVAL: record.kv_usage_at_arrival,
    }
    return {name: value for name, value in given.items() if value is not None}


def _parts(
    part_names: tuple[str, ...], parts: Parts | QueueParts | None, phase_s: float | None
) -> dict[str, float]:
    if parts is None or phase_s is None:
        return {}
    return dict(zip(part_names, parts.scaled_to(phase_s), strict=True))


def _events(record: RequestRecord) -> list[Event]:
    instants = [
        (names.ARRIVED, record.arrived),
        (names.QUEUED, record.queued),
        (names.SCHEDULED, record.scheduled),
        (names.FIRST_TOKEN, record.first_token),
        (names.FIRST_BYTE, record.first_byte),
        (names.LAST_TOKEN, record.last_token),
        *((names.PREEMPTION, at) for at in record.preempted_at),
        *((names.RESUMPTION, at) for at in record.resumed_at),
    ]
    told = [_Instant(name, _wall_ns(record, at)) for name, at in instants if at is not None]
    return cast("list[Event]", told)
