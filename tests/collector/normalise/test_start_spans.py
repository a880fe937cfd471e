from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.otlp.encoder import encode_span, export_of
from tailspan_vllm.otlp.request_span import SCOPE
from tailspan_vllm.otlp.start_span import failed_start_span, span_of_parts
from tailspan_vllm.start_up.failed_start import FailedStart
from tailspan_vllm.start_up.process import FirstProcess

from collector.drop_reasons import Refusal
from collector.normalise.spans import normalise_spans
from collector.rows.age_limit import AgeLimit
from collector.rows.sender_clocks import SenderClocks

PARTS = {names.START_IMPORTS: 6.0, names.START_WEIGHTS: 20.0, names.START_SERVER: 1.5}
LENGTH_NS = 27_500_000_000


def message(began_unix_ns: int, resource: Resource, parts: Any = PARTS) -> Any:
    state = EngineState(1, 0, model="llama", config="c0ffee", version="0.32.0")
    span = span_of_parts(state, parts, began_unix_ns, "seed")
    return ExportTraceServiceRequest.FromString(export_of(resource, SCOPE, [encode_span(span)]))


def span_of(message: Any) -> Any:
    return message.resource_spans[0].scope_spans[0].spans[0]


def test_a_start_is_read_in_full(resource: Resource, now_unix_ns: int) -> None:
    began = now_unix_ns - 2 * LENGTH_NS
    batch = normalise_spans(message(began, resource).SerializeToString(), now_unix_ns)
    (start,) = batch.cold_starts
    assert batch.accepted == 1
    assert not batch.empty
    assert not len(batch.requests)
    assert (start.replica, start.engine, start.region) == ("replica-1", 1, "eu-north-1")
    assert (start.model, start.config, start.version) == ("llama", "c0ffee", "0.32.0")
    assert (start.at_unix_ns, start.ready_unix_ns) == (began, began + LENGTH_NS)
    assert start.parts_s == {"imports": 6.0, "weights": 20.0, "server": 1.5}
    assert start.compile_s is None
    assert not start.simulated


def test_the_parts_before_the_first_process_are_read_in_order(
    resource: Resource, now_unix_ns: int
) -> None:
    before = {
        names.START_CONTAINER: 7.5,
        names.START_INIT_CONTAINERS: 20.0,
        names.START_SCHEDULING: 30.0,
        names.START_IMAGE_PULL: 50.0,
    }
    given = message(now_unix_ns - 200 * 10**9, resource, {**PARTS, **before})
    (start,) = normalise_spans(given.SerializeToString(), now_unix_ns).cold_starts
    assert list(start.parts_s.items())[:5] == [
        ("scheduling", 30.0),
        ("image_pull", 50.0),
        ("init_containers", 20.0),
        ("container", 7.5),
        ("imports", 6.0),
    ]
    assert start.length_s == sum(start.parts_s.values()) == 135.0


def refused(given: Any, now_unix_ns: int) -> list[Refusal]:
    batch = normalise_spans(given.SerializeToString(), now_unix_ns)
    assert not batch.cold_starts
    assert batch.accepted == 0
    return list(batch.refused)


def without(given: Any, name: str) -> Any:
    for bearer in (span_of(given), given.resource_spans[0].resource):
        kept = [pair for pair in bearer.attributes if pair.key != name]
        del bearer.attributes[:]
        bearer.attributes.extend(kept)
    return given


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (names.ENGINE, Refusal.MISSING_ENGINE),
        (names.START_WEIGHTS, Refusal.PARTS_DO_NOT_SUM),
    ],
)
def test_a_start_that_lacks_a_value_is_refused(
    name: str, reason: Refusal, resource: Resource, now_unix_ns: int
) -> None:
    given = without(message(now_unix_ns - LENGTH_NS, resource), name)
    assert refused(given, now_unix_ns) == [reason]


def test_a_start_of_an_unnamed_server_is_refused(now_unix_ns: int) -> None:
    given = message(now_unix_ns - LENGTH_NS, Resource({}))
    assert refused(given, now_unix_ns) == [Refusal.MISSING_REPLICA]


def test_starts_with_wrong_times_are_refused(resource: Resource, now_unix_ns: int) -> None:
    backwards = message(now_unix_ns - LENGTH_NS, resource)
    span_of(backwards).end_time_unix_nano = span_of(backwards).start_time_unix_nano - 1
    assert refused(backwards, now_unix_ns) == [Refusal.ENDS_BEFORE_START]
    ancient = message(10**9, resource)
    assert refused(ancient, now_unix_ns) == [Refusal.INSTANT_OUT_OF_RANGE]
    endless = message(now_unix_ns - 10**14, resource)
    span_of(endless).end_time_unix_nano = now_unix_ns
    assert refused(endless, now_unix_ns) == [Refusal.ABSURD_DURATION]


@pytest.mark.parametrize(
    "value", [{"string_value": "long"}, {"double_value": -1.0}, {"double_value": float("nan")}]
)
def test_a_part_that_is_no_duration_is_refused(
    value: Any, resource: Resource, now_unix_ns: int
) -> None:
    given = without(message(now_unix_ns - LENGTH_NS, resource), names.START_WEIGHTS)
    pair = KeyValue(key=names.START_WEIGHTS, value=AnyValue(**value))
    span_of(given).attributes.append(pair)
    assert len(refused(given, now_unix_ns)) == 1


def test_another_span_of_the_plugin_is_no_start(resource: Resource, now_unix_ns: int) -> None:
    given = message(now_unix_ns - LENGTH_NS, resource)
    span_of(given).name = "tailspan.starting"
    batch = normalise_spans(given.SerializeToString(), now_unix_ns)
    assert batch.refused == {Refusal.MISSING_OUTCOME: 1}


@given(data=st.binary(max_size=200))
def test_hostile_attributes_never_raise(data: bytes) -> None:
    given = message(1_763_600_000 * 10**9, Resource({names.SERVICE_INSTANCE_ID: "a"}))
    for pair in span_of(given).attributes:
        pair.value.bytes_value = data
    batch = normalise_spans(given.SerializeToString(), 1_763_700_000 * 10**9)
    assert not batch.cold_starts


def test_an_old_start_is_refused(resource: Resource, now_unix_ns: int) -> None:
    given = message(now_unix_ns - 3_600 * 10**9, resource)
    batch = normalise_spans(given.SerializeToString(), now_unix_ns)
    AgeLimit(600 * 10**9)(batch, now_unix_ns)
    assert (batch.cold_starts, batch.accepted) == ([], 0)
    assert batch.refused == {Refusal.TOO_OLD: 1}


def test_a_fast_clock_is_corrected(resource: Resource, now_unix_ns: int) -> None:
    given = message(now_unix_ns + 600 * 10**9, resource)
    batch = normalise_spans(given.SerializeToString(), now_unix_ns)
    SenderClocks()(batch, now_unix_ns)
    (start,) = batch.cold_starts
    assert start.ready_unix_ns == pytest.approx(now_unix_ns, abs=2 * 10**9)
    assert start.clock_ahead_s == pytest.approx(627.5, abs=2.0)


def test_a_failed_start_has_the_part_in_which_it_failed(
    resource: Resource, now_unix_ns: int
) -> None:
    first = FirstProcess(100.0, 106.0, now_unix_ns - 2 * LENGTH_NS)
    parts = {names.START_IMPORTS: 6.0, names.START_WEIGHTS: 21.5}
    failed = FailedStart(1, parts, names.START_WEIGHTS, "OutOfMemoryError")
    span = failed_start_span(failed, first, {})
    assert span is not None
    message = export_of(resource, SCOPE, [encode_span(span)])
    (start,) = normalise_spans(message, now_unix_ns).cold_starts
    assert (start.reached, start.failure) == ("weights", "OutOfMemoryError")
    assert start.parts_s == {"imports": 6.0, "weights": 21.5}
    assert start.length_s == 27.5


def test_a_start_that_took_implausibly_long_is_not_sent(now_unix_ns: int) -> None:
    first = FirstProcess(100.0, 106.0, now_unix_ns)
    failed = FailedStart(1, {names.START_WEIGHTS: 1e9}, names.START_WEIGHTS, "exit")
    assert failed_start_span(failed, first, {}) is None
