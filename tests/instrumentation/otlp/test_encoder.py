import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from tailspan_vllm.engine_state.state import EngineState, EngineStateSample
from tailspan_vllm.names import UNITS
from tailspan_vllm.otlp.encoder import encode, encode_numbers
from tailspan_vllm.otlp.engine_metrics import encode_samples

from tests.instrumentation.otlp.sdk_metrics import metrics_of

RESOURCE = Resource({"service.name": "vllm", "process.pid": 7, "tailspan.simulated": True})
SCOPE = InstrumentationScope("tailspan_vllm")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
values = st.one_of(
    texts,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.lists(texts, max_size=3).map(tuple),
)
instants = st.integers(0, 2**63 - 1)


@st.composite
def spans(draw: st.DrawFn) -> ReadableSpan:
    trace_id = draw(st.integers(1, 2**128 - 1))
    flags = TraceFlags(draw(st.integers(0, 1)))
    parent = None
    if draw(st.booleans()):
        span_id = draw(st.integers(1, 2**64 - 1))
        parent = SpanContext(trace_id, span_id, draw(st.booleans()), flags)
    return ReadableSpan(
        name=draw(texts),
        context=SpanContext(trace_id, draw(st.integers(1, 2**64 - 1)), False, flags),
        parent=parent,
        resource=RESOURCE,
        attributes=draw(st.dictionaries(texts.filter(bool), values, max_size=12)),
        events=[
            Event(name, timestamp=at) for name, at in draw(st.lists(st.tuples(texts, instants)))
        ],
        kind=draw(st.sampled_from(SpanKind)),
        status=Status(draw(st.sampled_from(StatusCode))),
        start_time=draw(instants),
        end_time=draw(instants),
        instrumentation_scope=SCOPE,
    )


@settings(deadline=None)
@given(st.lists(spans(), min_size=1, max_size=4))
def test_the_message_is_the_sdks(given: list[ReadableSpan]) -> None:
    assert in_order(traces(encode(given))) == in_order(encode_spans(given))


def traces(message: bytes) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest.FromString(message)


def in_order(message: ExportTraceServiceRequest) -> ExportTraceServiceRequest:
    """Return the message with the attributes of each span sorted by key."""
    for span in message.resource_spans[0].scope_spans[0].spans:
        span.attributes.sort(key=lambda attribute: attribute.key)
    return message


@given(st.text(st.characters(categories=["Cs"]), min_size=1, max_size=5))
def test_half_a_character_is_replaced(hostile: str) -> None:
    """One malformed label of a client must not make the whole batch invalid."""
    span = ReadableSpan(
        "chat",
        SpanContext(1, 2, False),
        attributes={"tenant": hostile},
        resource=RESOURCE,
        instrumentation_scope=SCOPE,
    )
    message = traces(encode([span]))
    (reported,) = message.resource_spans[0].scope_spans[0].spans[0].attributes
    assert set(reported.value.string_value) == {"?"}


def test_an_empty_batch_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="no spans"):
        encode([])


numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))


@st.composite
def samples(draw: st.DrawFn) -> list[EngineStateSample]:
    made = []
    for _ in range(draw(st.integers(1, 4))):
        state = EngineState(
            engine=draw(st.integers(0, 3)),
            started_unix_ns=draw(instants),
            model=draw(st.none() | texts),
            config=draw(st.none() | texts),
            gauges=draw(st.dictionaries(st.sampled_from(sorted(UNITS)), numbers, max_size=5)),
            totals=draw(st.dictionaries(st.sampled_from(sorted(UNITS)), numbers, max_size=5)),
            failures=draw(st.dictionaries(texts, st.integers(1, 9), max_size=2)),
        )
        made.append(EngineStateSample(draw(instants), state))
    return made


@settings(deadline=None)
@given(samples())
def test_the_metrics_are_the_sdks(given: list[EngineStateSample]) -> None:
    data = metrics_of(given, RESOURCE)
    sdks = encode_metrics(data)
    assert ExportMetricsServiceRequest.FromString(encode_samples(given, RESOURCE)) == sdks
    assert encode_samples(given, RESOURCE) == encode_numbers(data)
