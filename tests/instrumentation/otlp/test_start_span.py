from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.engine_core.link import TOKEN_VARIABLE
from tailspan_vllm.engine_state.hardware import MAX_LOADING_S
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.otlp.encoder import encode_span, export_of
from tailspan_vllm.otlp.request_span import SCOPE
from tailspan_vllm.otlp.start_span import start_span
from tailspan_vllm.start_up.instants import EngineInstants, WorkerStart
from tailspan_vllm.start_up.process import START_VARIABLE

BEGAN_NS = 1_763_600_000_000_000_000
ENVIRON: Any = {TOKEN_VARIABLE: "t", START_VARIABLE: f"100.0 106.0 {BEGAN_NS}"}
STATE = EngineState(engine=1, started_unix_ns=0, model="llama", config="c0ffee", version="0.32.0")
INSTANTS = EngineInstants(108.0, 115.0, 130.0, 147.0, WorkerStart(2.0, 12.0, 9.0, 5.0))


def test_a_start_is_one_span_whose_parts_sum_to_its_length() -> None:
    span = start_span(STATE, INSTANTS, 148.5, ENVIRON)
    assert span is not None
    assert span.attributes is not None
    assert (span.name, span.start_time) == (names.START, BEGAN_NS)
    assert span.end_time == BEGAN_NS + 48_500_000_000
    parts = [value for name, value in span.attributes.items() if name.startswith("tailspan.start.")]
    assert sum(parts) == 48.5  # type: ignore[arg-type]
    assert span.attributes[names.ENGINE] == 1
    assert span.attributes[names.ENGINE_VERSION] == "0.32.0"


def test_the_parts_before_the_first_process_move_the_begin_of_the_span() -> None:
    before = {names.START_SCHEDULING: 30.0, names.START_CONTAINER: 7.5}
    span = start_span(STATE, INSTANTS, 148.5, ENVIRON, before)
    assert span is not None
    assert span.attributes is not None
    assert span.start_time == BEGAN_NS - 37_500_000_000
    assert span.end_time == BEGAN_NS + 48_500_000_000
    assert span.attributes[names.START_SCHEDULING] == 30.0
    without = start_span(STATE, INSTANTS, 148.5, ENVIRON)
    assert without is not None
    assert span.context == without.context


def test_parts_before_the_first_process_that_are_too_long_are_left_out() -> None:
    span = start_span(STATE, INSTANTS, 148.5, ENVIRON, {names.START_SCHEDULING: MAX_LOADING_S})
    assert span is not None
    assert span.attributes is not None
    assert names.START_SCHEDULING not in span.attributes
    assert span.start_time == BEGAN_NS


def test_the_span_has_the_form_of_the_protocol() -> None:
    span = start_span(STATE, INSTANTS, 148.5, ENVIRON)
    assert span is not None
    message = ExportTraceServiceRequest.FromString(
        export_of(Resource({}), SCOPE, [encode_span(span)])
    )
    (found,) = message.resource_spans[0].scope_spans[0].spans
    assert found.name == names.START
    assert len(found.trace_id) == 16
    assert {pair.key: pair.value.double_value for pair in found.attributes}[
        names.START_WEIGHTS
    ] == 12.0


def test_each_api_server_sends_the_same_ids_and_each_engine_its_own() -> None:
    def ids(state: EngineState, served: float, environ: Any) -> tuple[int, int]:
        span = start_span(state, INSTANTS, served, environ)
        assert span is not None
        assert span.context is not None
        return span.context.trace_id, span.context.span_id

    first = ids(STATE, 148.5, ENVIRON)
    assert ids(STATE, 149.0, ENVIRON) == first
    assert ids(EngineState(engine=2, started_unix_ns=0), 148.5, ENVIRON) != first
    assert ids(STATE, 148.5, {**ENVIRON, TOKEN_VARIABLE: "u"}) != first


def test_without_the_start_of_the_first_process_there_is_no_span() -> None:
    assert start_span(STATE, INSTANTS, None, {TOKEN_VARIABLE: "t"}) is None


def test_a_start_that_is_too_long_is_no_start() -> None:
    late = {**ENVIRON, START_VARIABLE: f"{147.0 - MAX_LOADING_S - 1} 106.0 {BEGAN_NS}"}
    assert start_span(STATE, INSTANTS, None, late) is None
