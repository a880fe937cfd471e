import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState, EngineStateSample
from tailspan_vllm.export.span_queue import SPAN_BYTES
from tailspan_vllm.otlp.encoder import encode, encode_span
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.parts import HeldParts, KvLoad, RequestPhaseParts, RequestQueueParts
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.request.record_builder import PREEMPTIONS_LIMIT
from tailspan_vllm.request.text_limits import TEXT_LIMIT

from tests.instrumentation.otlp.sdk_metrics import metrics_of

RESOURCE = Resource({"service.name": "vllm"})


def a_record(**given: object) -> RequestRecord:
    """Return the record of a request of 1 s that began 100 s after the clock's zero."""
    fields: dict[str, object] = {
        "received": 100.0,
        "delivered": 101.0,
        "wall_offset_ns": 1_700_000_000_000_000_000,
        "outcome": "stop",
        "basis": "http",
        "queued": 100.1,
        "scheduled": 100.2,
        "first_token": 100.4,
        "first_byte": 100.41,
        "last_token": 100.9,
        "model": "m",
        **given,
    }
    return RequestRecord(**fields)  # type: ignore[arg-type]


def test_instants_are_placed_on_the_calendar_by_one_offset() -> None:
    span = span_of(a_record(), RESOURCE)
    assert span.start_time == 1_700_000_100_000_000_000
    assert span.end_time == span.start_time + 1_000_000_000
    at = {event.name: event.timestamp for event in span.events}
    assert at[names.FIRST_TOKEN] == span.start_time + 400_000_000


def test_ttft_is_from_received_to_the_first_byte() -> None:
    attributes = span_of(a_record(), RESOURCE).attributes or {}
    assert attributes[names.TTFT] == 100.41 - 100.0
    unseen = span_of(a_record(basis="engine", first_byte=None), RESOURCE).attributes or {}
    assert unseen[names.TTFT] == 100.4 - 100.0


def test_the_parts_of_a_part_are_scaled_with_it() -> None:
    """The engine core measured half the front end's queue time, and twice its prefill time."""
    record = a_record(
        queue_parts=RequestQueueParts(0.01, 0.0, 0.0, 0.04, 0.0),
        held_parts=HeldParts(0.01, 0.02, 0.0),
        prefill_parts=RequestPhaseParts(0.3, 0.1, 0.0, 0.0, 0.0),
        encoder_s=0.2,
    )
    attributes = span_of(record, RESOURCE).attributes or {}
    queue = [attributes[name] for name in names.QUEUE_PARTS]
    assert queue == pytest.approx([0.02, 0.0, 0.0, 0.08, 0.0])
    held = [attributes[name] for name in names.HELD_PARTS]
    assert held == pytest.approx([0.02, 0.04, 0.0])
    assert attributes[names.PREFILL_PARTS[0]] == pytest.approx(0.15)
    assert attributes[names.ENCODER] == pytest.approx(0.1)


def test_unknown_reasons_and_loads_are_absent() -> None:
    attributes = span_of(a_record(kv_load=KvLoad(None, "disk")), RESOURCE).attributes or {}
    assert attributes[names.EXTERNAL_CACHE_TIER] == "disk"
    absent = (names.EXTERNAL_CACHED_BYTES, names.ENCODER, *names.HELD_PARTS)
    assert not set(absent) & set(attributes)


def test_a_response_that_did_not_begin_has_no_ttft() -> None:
    """The first byte of an error message is not a first token."""
    refused = a_record(
        outcome="rejected", queued=None, scheduled=None, first_token=None, last_token=None
    )
    attributes = span_of(refused, RESOURCE).attributes or {}
    assert names.TTFT not in attributes
    assert names.FINISH_REASONS not in attributes
    assert attributes[names.FRONTEND] == 1.0


def test_a_parent_is_kept_and_an_orphan_is_a_root() -> None:
    child = span_of(a_record(trace_id=7, parent_span_id=9), RESOURCE)
    assert child.context is not None
    assert child.parent is not None
    assert (child.context.trace_id, child.parent.span_id) == (7, 9)
    assert span_of(a_record(), RESOURCE).parent is None


def test_encoded_spans_are_valid_otlp() -> None:
    span = span_of(a_record(), RESOURCE)
    ours = ExportTraceServiceRequest.FromString(encode([span]))
    theirs = encode_spans([span])
    for message in (ours, theirs):
        message.resource_spans[0].scope_spans[0].spans[0].attributes.sort(key=lambda each: each.key)
    assert ours == theirs
    (resource_spans,) = encode_spans([span]).resource_spans
    assert resource_spans.scope_spans[0].scope.name == names.SCOPE
    state = EngineState(0, 1, "m", gauges={names.WAITING: 3}, totals={names.STEPS: 5})
    data = metrics_of(
        [EngineStateSample(2, state.snapshot({names.SPANS_DROPPED: 0}, {}))], RESOURCE
    )
    (resource_metrics,) = encode_metrics(data).resource_metrics
    values = {metric.name for metric in resource_metrics.scope_metrics[0].metrics}
    assert values == {names.WAITING, names.STEPS, names.SPANS_DROPPED}


def test_samples_of_several_instants_are_sent_together() -> None:
    state = EngineState(0, 0, gauges={names.WAITING: 0}, totals={names.STEPS: 0})
    samples = []
    for at in (1, 2, 3):
        state.gauges[names.WAITING] = at
        state.add(names.STEPS, 10)
        samples.append(EngineStateSample(at, state.snapshot({}, {"send": at})))
    (entry,) = encode_metrics(metrics_of(samples, RESOURCE)).resource_metrics
    waiting, steps, failures = entry.scope_metrics[0].metrics
    points = [(point.time_unix_nano, point.as_int) for point in waiting.gauge.data_points]
    assert points == [(1, 1), (2, 2), (3, 3)]
    assert [point.as_int for point in steps.sum.data_points] == [10, 20, 30]
    assert [point.as_int for point in failures.sum.data_points] == [1, 2, 3]


def test_every_metric_has_a_unit() -> None:
    reported = [
        name
        for value in vars(names).values()
        for name in (value if isinstance(value, tuple) else (value,))
    ]
    metrics = {
        name
        for name in reported
        if isinstance(name, str)
        and name.startswith(
            ("tailspan.engine.", "tailspan.process.", "tailspan.host.", "tailspan.instr")
        )
    }
    assert metrics - {names.ENGINE_STARTED, names.ENGINE_VERSION, names.LOADING} == set(names.UNITS)


def test_a_span_at_every_limit_fits_in_the_queue() -> None:
    text = "\U0001f600" * TEXT_LIMIT
    instants = [100.3] * PREEMPTIONS_LIMIT
    record = a_record(
        **dict.fromkeys(("request_id", "lora", "route", "tenant", "error_type", "config"), text),
        preempted_at=instants,
        resumed_at=instants,
    )
    assert len(encode_span(span_of(record, RESOURCE))) <= SPAN_BYTES


def test_a_request_of_the_engine_core_has_no_phases_of_the_front_end() -> None:
    """Frontend and delivery are unknown, not zero."""
    record = RequestRecord(
        received=10.0,
        delivered=14.0,
        wall_offset_ns=0,
        outcome="length",
        basis="engine",
        queued=10.0,
        scheduled=11.0,
        first_token=12.0,
        last_token=14.0,
    )
    attributes = span_of(record, Resource({})).attributes
    assert attributes is not None
    found = {name: attributes.get(name) for name in (names.FRONTEND, names.DELIVERY)}
    assert found == {names.FRONTEND: None, names.DELIVERY: None}
    phases = (names.QUEUE, names.PREFILL, names.DECODE)
    assert [attributes[name] for name in phases] == [1.0, 1.0, 2.0]
    assert attributes[names.TTFT] == 2.0
