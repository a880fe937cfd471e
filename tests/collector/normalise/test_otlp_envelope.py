import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tailspan_vllm import names

from collector.errors import MalformedError, TooLargeError
from collector.normalise.otlp_envelope import MAX_ATTRIBUTES, MAX_PART_BYTES, MAX_PARTS, unfold
from collector.signals import METRICS, SIGNALS, TRACES, Signal


def _message(*spans: Span) -> bytes:
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.extend(spans)
    return message.SerializeToString()


def test_the_items_have_their_resource_and_scope() -> None:
    message = ExportTraceServiceRequest()
    for name in ("a", "b"):
        group = message.resource_spans.add()
        group.resource.attributes.add(key=name)
        group.scope_spans.add().spans.add(name="1")
        group.scope_spans.add().scope.name = name
    found = list(unfold(message.SerializeToString()))
    assert [each.scope for each in found] == ["", "a", "", "b"]
    assert [len(each.items) for each in found] == [1, 0, 1, 0]
    assert found[0].resource == message.resource_spans[0].resource.SerializeToString()
    assert Span.FromString(found[0].items[0]).name == "1"


@pytest.mark.parametrize("tag", [b"\x0a\x00", b"\x0a\x02\x12\x00", b"\x0a\x04\x12\x02\x12\x00"])
@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.name)
def test_a_message_of_many_empty_items_is_refused(signal: Signal, tag: bytes) -> None:
    """An item has two bytes when received, and 150 bytes when parsed."""
    with pytest.raises(TooLargeError, match=f"more than {MAX_PARTS} items"):
        signal.read(tag * (MAX_PARTS + 1), 0)


def test_a_span_that_is_too_large_by_itself_is_refused() -> None:
    """One span can contain a million empty attributes."""
    with pytest.raises(TooLargeError, match=f"exceeds the limit of {MAX_PART_BYTES} bytes"):
        list(unfold(_message(Span(name="x" * MAX_PART_BYTES))))


@pytest.mark.parametrize("scope", ["", names.SCOPE])
def test_data_points_are_items_too(scope: str) -> None:
    """A metric of 1 MiB can contain half a million empty data points."""
    message = ExportMetricsServiceRequest()
    scoped = message.resource_metrics.add().scope_metrics.add()
    scoped.scope.name = scope
    for _ in range(2):
        metric = scoped.metrics.add(name=names.WAITING)
        metric.gauge.data_points.extend([NumberDataPoint()] * (MAX_PARTS // 2 + 1))
    with pytest.raises(TooLargeError, match=f"more than {MAX_PARTS} items"):
        METRICS.read(message.SerializeToString(), 0)


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.name)
@pytest.mark.parametrize("body", [b"\x0a", b"\xff" * 9, b"\x0a\x02\x12\x05"])
def test_an_incomplete_message_is_malformed(signal: Signal, body: bytes) -> None:
    with pytest.raises(MalformedError):
        signal.read(body, 0)


def test_too_many_attributes_are_refused() -> None:
    """An item can contain half a million attributes of two bytes each."""
    span = Span()
    span.attributes.extend([KeyValue()] * (MAX_ATTRIBUTES + 1))
    with pytest.raises(TooLargeError, match=f"with {MAX_ATTRIBUTES + 1} attributes exceeds"):
        TRACES.read(_message(span), 0)
