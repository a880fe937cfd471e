"""Converts engine starts and requests in flight to OpenTelemetry events (named log records).

The SDK's classes for log records differ between versions, so this module builds the messages
itself.

Source: OpenTelemetry logs data model, "Events"; opentelemetry-proto logs/v1/logs.proto.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.sdk.resources import Resource

from tailspan_vllm import names
from tailspan_vllm.engine_state.config_fingerprint import Scalar
from tailspan_vllm.engine_state.hardware import UNKNOWN, Machine
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.request.record_builder import age_s
from tailspan_vllm.request.text_limits import bounded_text

_NAMED = "event_name" in LogRecord.DESCRIPTOR.fields_by_name
"""True if log records have a field for the event's name, which exists since opentelemetry-proto
1.5."""


@dataclass(frozen=True, slots=True)
class EngineStartEvent:
    """Start of an engine. The engine has run with these arguments since `at_unix_ns`."""

    engine: int
    at_unix_ns: int
    started_unix_ns: int
    config: str
    model: str | None = None
    version: str | None = None
    arguments: Mapping[str, Scalar] = field(default_factory=dict)
    machine: Machine = UNKNOWN


def start_of(state: EngineState, config: str, at_unix_ns: int) -> EngineStartEvent:
    """Start event of an engine in its current state."""
    return EngineStartEvent(
        engine=state.engine,
        at_unix_ns=at_unix_ns,
        started_unix_ns=state.started_unix_ns,
        config=config,
        model=state.model,
        version=state.version,
        arguments=dict(state.arguments),
        machine=state.machine,
    )


def message_of(starts: Sequence[EngineStartEvent], resource: Resource) -> ExportLogsServiceRequest:
    """Return one OTLP log message with engine starts."""
    return _message(map(_record_of, starts), resource)


def in_flight_message_of(
    requests: Iterable[RequestRecord], resource: Resource
) -> ExportLogsServiceRequest:
    """Return a log message with requests in flight. In each record, `delivered` is the time of the
    report."""
    return _message(map(_in_flight_record_of, requests), resource)


def _message(records: Iterable[LogRecord], resource: Resource) -> ExportLogsServiceRequest:
    message = ExportLogsServiceRequest()
    group = message.resource_logs.add()
    group.resource.attributes.extend(_pairs(resource.attributes))
    scoped = group.scope_logs.add()
    scoped.scope.name = names.SCOPE
    scoped.log_records.extend(records)
    return message


def _in_flight_record_of(request: RequestRecord) -> LogRecord:
    given: dict[str, Any] = {
        names.PROVIDER_NAME: names.PROVIDER_VLLM,
        names.OPERATION_NAME: request.operation,
        names.REQUEST_MODEL: request.model,
        names.HTTP_ROUTE: request.route,
        names.STREAMED: request.streamed,
        names.TENANT: request.tenant,
        names.LORA: request.lora,
        names.CONFIG: request.config,
        names.ENGINE: request.engine,
        names.INPUT_TOKENS: request.prompt_tokens,
        names.IN_FLIGHT_AGE: age_s(request, request.delivered),
        names.REPORTED_IN_FLIGHT: request.reported_in_flight_s,
        names.TTFT: None if request.first_byte is None else request.first_byte - request.received,
    }
    assert request.trace_id is not None
    assert request.span_id is not None
    at_unix_ns = request.wall_offset_ns + round(request.delivered * 1e9)
    record = _event(names.REQUEST_IN_FLIGHT, at_unix_ns, given, "a request has not ended")
    record.trace_id = request.trace_id.to_bytes(16, "big")
    record.span_id = request.span_id.to_bytes(8, "big")
    record.flags = request.trace_flags
    return record


def _record_of(start: EngineStartEvent) -> LogRecord:
    given: dict[str, Any] = {
        names.ENGINE: start.engine,
        names.REQUEST_MODEL: start.model,
        names.PROVIDER_NAME: names.PROVIDER_VLLM,
        names.ENGINE_VERSION: start.version,
        names.CONFIG: start.config,
        names.DEVICE: start.machine.device,
        names.GPUS: start.machine.gpus,
        # After a change of the configuration, there is no loading time.
        names.LOADING: start.machine.loading_s
        if start.at_unix_ns == start.started_unix_ns
        else None,
        **{f"{names.SHAPE}{name}": value for name, value in start.machine.shape.items()},
        **{f"{names.ARGUMENT}{name}": value for name, value in start.arguments.items()},
    }
    body = f"engine {start.engine} runs with configuration {start.config}"
    return _event(names.ENGINE_STARTED, start.at_unix_ns, given, body)


def _event(name: str, at_unix_ns: int, given: Mapping[str, Any], body: str) -> LogRecord:
    if not _NAMED:
        given = {**given, names.EVENT_NAME: name}
    record = LogRecord(
        time_unix_nano=at_unix_ns,
        observed_time_unix_nano=at_unix_ns,
        severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        severity_text="INFO",
        body=AnyValue(string_value=body),
        attributes=_pairs({name: value for name, value in given.items() if value is not None}),
    )
    if _NAMED:
        record.event_name = name
    return record


def _pairs(attributes: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, list | tuple):
        return AnyValue(array_value=ArrayValue(values=map(_value, value)))
    return AnyValue(string_value=bounded_text(str(value)))
