"""Convert simulated telemetry to the rows of `telemetry/`, without a network. Pure.

A record is converted by the instrumentation's span encoder, so the row equals the row that a
collector would store.
"""

from enum import StrEnum
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.record import RequestRecord

from simulator.disaggregation import RoutedRequest
from simulator.router_span import NAME, span_id_of
from telemetry.application_operations import ApplicationOperation, Operation
from telemetry.engines import EngineSample
from telemetry.fields import on_the_wire
from telemetry.requests import (
    FIELDS,
    Basis,
    Outcome,
    RequestTimeline,
    Source,
    request_of_values,
)
from telemetry.starts import EngineStart, written

_ATTRIBUTES: Final = {field.name: wire for wire, field in on_the_wire(RequestTimeline).items()}
_PLACES: Final = tuple(_ATTRIBUTES.get(field, "") for field in FIELDS)

_OF_AN_ENGINE: Final = on_the_wire(EngineSample)
_NOWHERE: Final = Resource({})


def request_of(record: RequestRecord, number: int, replica: str, region: str) -> RequestTimeline:
    """A request's row. `number` makes its ids unique."""
    span: Any = span_of(record, _NOWHERE)
    attributes = span.attributes
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
        given[field] if field in given else attributes.get(attribute)
        for field, attribute in zip(FIELDS, _PLACES, strict=True)
    )


def operation_of(routed: RoutedRequest, started_unix_ns: int) -> ApplicationOperation:
    """The row of a request at the router. `process` is the router's name. For a real router, the
    collector stores a digest."""
    at_unix_ns = started_unix_ns + round(routed.began_s * 1e9)
    first_s = routed.first_byte_s
    return ApplicationOperation(
        trace_id=f"{routed.bits:032x}",
        span_id=f"{span_id_of(routed):016x}",
        at_unix_ns=at_unix_ns,
        operation=Operation.ROUTER,
        length_s=(started_unix_ns + round(routed.ended_s * 1e9) - at_unix_ns) / 1e9,
        process=NAME,
        simulated=True,
        ttft_s=None if first_s is None else first_s - routed.began_s,
    )


def sample_of(
    state: EngineState, at_unix_ns: int, process: int, replica: str, region: str
) -> EngineSample:
    """An engine's state as a sample."""
    values: dict[str, Any] = {}
    for name, value in (*state.gauges.items(), *state.totals.items()):
        field = _OF_AN_ENGINE[name]
        values[field.name] = field.type(value)
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
    """The start of an engine as a row."""
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
        version=state.version,
        device=state.machine.device,
        gpus=state.machine.gpus,
        shape=written(state.machine.shape) if state.machine.shape else None,
        loading_s=state.machine.loading_s,
    )


def plain(value: object) -> object:
    """A value in the type that its column stores."""
    return value.value if isinstance(value, StrEnum) else value
