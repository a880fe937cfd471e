"""Encode results as an OTLP trace message with one span per probe."""

from collections.abc import Iterable
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status
from tailspan_vllm import names

from telemetry.fields import on_the_wire
from telemetry.probes import WAIT_PARTS, Probe

SERVICE: Final = "tailspan-probe"
_WIRE: Final = {wire: each.name for wire, each in on_the_wire(Probe).items()}


def message(region: str, results: Iterable[Probe]) -> bytes:
    """An OTLP trace message."""
    resource = Resource(
        attributes=[_pair(names.SERVICE_NAME, SERVICE), _pair(names.CLOUD_REGION, region)]
    )
    spans = ScopeSpans(
        scope=InstrumentationScope(name=names.PROBE_SCOPE), spans=[_span(each) for each in results]
    )
    return ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=resource, scope_spans=[spans])]
    ).SerializeToString()


def _span(result: Probe) -> Span:
    whole_s = sum(getattr(result, name) or 0.0 for name in WAIT_PARTS)
    failed = not result.outcome.succeeded
    return Span(
        trace_id=bytes.fromhex(result.trace_id),
        span_id=bytes.fromhex(result.span_id),
        name=f"probe {result.endpoint}",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=result.at_unix_ns,
        end_time_unix_nano=result.at_unix_ns + int(whole_s * 1e9),
        attributes=[
            _pair(wire, value)
            for wire, field in _WIRE.items()
            if (value := getattr(result, field)) is not None
        ],
        status=Status(code=Status.STATUS_CODE_ERROR) if failed else None,
    )


def _pair(key: str, value: str | bool | int | float) -> KeyValue:
    if isinstance(value, str):
        given = AnyValue(string_value=str(value))
    elif isinstance(value, bool):
        given = AnyValue(bool_value=value)
    elif isinstance(value, int):
        given = AnyValue(int_value=value)
    else:
        given = AnyValue(double_value=value)
    return KeyValue(key=key, value=given)
