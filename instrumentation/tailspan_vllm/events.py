"""The start of an engine as an OpenTelemetry event: a log record with an event name.

Written as the protocol's own message, and sent by the SDK's exporter: endpoints, headers,
TLS and retries are its affair, and its classes for log records, which are not stable and
differ between versions, are not needed.

Source: OpenTelemetry logs data model, "Events"; opentelemetry-proto logs/v1/logs.proto.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.sdk.resources import Resource

from tailspan_vllm import names
from tailspan_vllm.fingerprint import Scalar
from tailspan_vllm.machine import UNKNOWN, Machine
from tailspan_vllm.metrics import EngineState

_NAMED = "event_name" in LogRecord.DESCRIPTOR.fields_by_name
"""Before opentelemetry-proto 1.5 an event's name was an attribute."""


@dataclass(frozen=True, slots=True)
class EngineStart:
    """An engine runs with these arguments from `at_unix_ns` on."""

    engine: int
    at_unix_ns: int
    started_unix_ns: int
    config: str
    model: str | None = None
    version: str | None = None
    arguments: Mapping[str, Scalar] = field(default_factory=dict)
    machine: Machine = UNKNOWN


def start_of(state: EngineState, config: str, at_unix_ns: int) -> EngineStart:
    """The start of an engine as it stands."""
    return EngineStart(
        engine=state.engine,
        at_unix_ns=at_unix_ns,
        started_unix_ns=state.started_unix_ns,
        config=config,
        model=state.model,
        version=state.version,
        arguments=dict(state.arguments),
        machine=state.machine,
    )


def message_of(starts: Sequence[EngineStart], resource: Resource) -> ExportLogsServiceRequest:
    """One export of these events."""
    message = ExportLogsServiceRequest()
    group = message.resource_logs.add()
    group.resource.attributes.extend(_pairs(resource.attributes))
    scoped = group.scope_logs.add()
    scoped.scope.name = names.SCOPE
    scoped.log_records.extend(map(_record_of, starts))
    return message


def _record_of(start: EngineStart) -> LogRecord:
    given: dict[str, Any] = {
        names.ENGINE: start.engine,
        names.REQUEST_MODEL: start.model,
        names.PROVIDER_NAME: names.PROVIDER_VLLM,
        names.ENGINE_VERSION: start.version,
        names.CONFIG: start.config,
        names.DEVICE: start.machine.device,
        names.GPUS: start.machine.gpus,
        # A change of configuration loads nothing.
        names.LOADING: start.machine.loading_s
        if start.at_unix_ns == start.started_unix_ns
        else None,
        **{f"{names.SHAPE}{name}": value for name, value in start.machine.shape.items()},
        **{f"{names.ARGUMENT}{name}": value for name, value in start.arguments.items()},
    }
    if not _NAMED:
        given[names.EVENT_NAME] = names.ENGINE_STARTED
    record = LogRecord(
        time_unix_nano=start.at_unix_ns,
        observed_time_unix_nano=start.at_unix_ns,
        severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        severity_text="INFO",
        body=AnyValue(string_value=f"engine {start.engine} runs with configuration {start.config}"),
        attributes=_pairs({name: value for name, value in given.items() if value is not None}),
    )
    if _NAMED:
        record.event_name = names.ENGINE_STARTED
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
    return AnyValue(string_value=str(value))


class _Message(list[None]):
    """A message in the place of the SDK's records; as long as they would be."""

    def __init__(self, request: ExportLogsServiceRequest) -> None:
        records = (s.log_records for group in request.resource_logs for s in group.scope_logs)
        super().__init__([None] * sum(map(len, records)))
        self.request = request


def exporting(module: ModuleType, **options: Any) -> Callable[[ExportLogsServiceRequest], bool]:
    """What sends a message through the SDK's exporter and tells whether it arrived.

    Args:
        module: one of OpenTelemetry's OTLP log-exporter modules.
        options: of its exporter.
    """
    _teach(module)
    exporter = module.OTLPLogExporter(**options)
    return lambda request: bool(exporter.export(_Message(request)).name == "SUCCESS")


def _teach(module: ModuleType) -> None:
    """Let the module pass our messages on as they are, and encode everybody else's records."""
    original: Any = module.encode_logs
    if getattr(original, "tailspan", False):
        return

    def encode_logs(batch: Any) -> Any:
        return batch.request if isinstance(batch, _Message) else original(batch)

    encode_logs.tailspan = True  # type: ignore[attr-defined]  # marks it as already ours
    module.encode_logs = encode_logs  # type: ignore[attr-defined]  # the seam
