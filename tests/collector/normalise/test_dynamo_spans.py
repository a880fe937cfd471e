import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.drop_reasons import Refusal, Skip
from collector.normalise.batch import NormalisedBatch
from collector.normalise.spans import normalise_spans
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

SAMPLE = Path(__file__).parents[1] / "samples" / "dynamo-1.6.1.json"
NOW_UNIX_NS = 1_796_000_000 * 10**9
ABSENT: Any = object()


def recorded() -> ExportTraceServiceRequest:
    (message,) = json.loads(SAMPLE.read_text())["messages"]
    return ParseDict(message, ExportTraceServiceRequest())


def read(message: ExportTraceServiceRequest) -> NormalisedBatch:
    return normalise_spans(message.SerializeToString(), NOW_UNIX_NS)


def set_value(given: Any, name: str, value: Any) -> None:
    """Set an attribute of a span or an event; ABSENT removes the attribute."""
    kept = [each for each in given.attributes if each.key != name]
    del given.attributes[:]
    given.attributes.extend(kept)
    if value is not ABSENT:
        kind = {bool: "bool_value", int: "int_value", float: "double_value"}
        field = kind.get(type(value), "string_value")
        given.attributes.append(KeyValue(key=name, value=AnyValue(**{field: value})))


def changed(status: Any = "200", events: bool = True, **attributes: Any) -> NormalisedBatch:
    """Read the recorded streamed chat with changed attributes."""
    message = recorded()
    (span,) = [
        span
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if span.name == "http-request" and span.trace_id == b"\xab" * 16
    ]
    for name, value in attributes.items():
        set_value(span, name.replace("__", "."), value)
    for event in span.events:
        if event.name == "http response sent":
            set_value(event, "status", status)
    if not events:
        del span.events[:]
    alone = ExportTraceServiceRequest()
    scope = alone.resource_spans.add().scope_spans.add()
    scope.spans.append(span)
    return read(alone)


def request_of(batch: NormalisedBatch) -> RequestTimeline:
    assert not batch.refused
    (request,) = batch.requests
    return request


def test_each_http_request_of_a_recorded_dynamo_is_one_row() -> None:
    """Spans of the router and of the workers describe the same requests, and are skipped."""
    message = recorded()
    spans = [s for r in message.resource_spans for c in r.scope_spans for s in c.spans]
    batch = read(message)
    assert not batch.refused
    assert len(batch.requests) == sum(span.name == "http-request" for span in spans) == 10
    assert batch.skipped == {Skip.NOT_A_REQUEST: len(spans) - 10}
    for request in batch.requests:
        assert (request.source, request.basis) == (Source.NATIVE, Basis.EDGE)
        assert (request.replica, request.region) == ("dynamo-frontend", None)
        assert (request.frontend_s, request.queue_s, request.prefill_s) == (None, None, None)
        assert (request.ttft_s or 0.0) + (request.decode_s or 0.0) <= request.e2e_s
        assert request.http_status is not None
    outcomes = [request.outcome for request in batch.requests]
    assert outcomes.count(Outcome.ABORT) == 1
    assert outcomes.count(Outcome.REJECTED) == 3
    assert outcomes.count(Outcome.STOP) == 6


def test_a_streamed_chat_has_its_latencies_tokens_and_ids() -> None:
    request = request_of(changed())
    assert (request.trace_id, request.route) == ("ab" * 16, "/v1/chat/completions")
    assert (request.operation, request.model, request.streamed) == ("chat", "tiny", True)
    assert (request.prompt_tokens, request.output_tokens) == (22, 16)
    assert (request.request_id or "").startswith("chatcmpl-")
    assert request.ttft_s is not None
    assert request.tpot_s is not None
    assert request.ttft_s + 15 * request.tpot_s == pytest.approx(request.e2e_s, abs=0.02)


def test_each_path_has_its_operation() -> None:
    found = {
        request.route: (request.operation, request.request_id is not None)
        for request in read(recorded()).requests
    }
    assert found == {
        "/v1/chat/completions": ("chat", True),
        "/v1/completions": ("text_completion", True),
        "/v1/responses": ("chat", False),
        "/v1/embeddings": ("embeddings", False),
    }


def test_a_refused_request_has_its_status_and_no_made_up_model() -> None:
    refused = [r for r in read(recorded()).requests if r.outcome is Outcome.REJECTED]
    assert [(r.http_status, r.error_type, r.model) for r in refused] == [
        (404, "not_found", None),
        (404, None, None),
        (400, None, None),
    ]


@pytest.mark.parametrize(
    ("status", "reported", "outcome"),
    [
        ("200", "success", Outcome.STOP),
        ("200", ABSENT, Outcome.STOP),
        ("200", "error", Outcome.ERROR),
        ("200", "exploded", Outcome.ERROR),
        ("200", "cancelled", Outcome.ABORT),
        ("429", ABSENT, Outcome.REJECTED),
        ("503", ABSENT, Outcome.ERROR),
        ("99999", "success", Outcome.STOP),
    ],
)
def test_the_outcome_comes_from_the_span_and_the_http_status(
    status: str, reported: Any, outcome: Outcome
) -> None:
    assert request_of(changed(status, request__outcome=reported)).outcome is outcome


def test_without_events_the_status_is_unknown() -> None:
    request = request_of(changed(events=False))
    assert (request.http_status, request.streamed) == (None, None)


@pytest.mark.parametrize(
    "attributes",
    [{"target": "another_program"}, {"target": ABSENT}, {"uri": "/v1/models"}, {"uri": ABSENT}],
)
def test_a_span_of_another_program_is_skipped(attributes: dict[str, Any]) -> None:
    batch = changed(**attributes)
    assert batch.empty
    assert batch.skipped == {Skip.NOT_A_REQUEST: 1}


@pytest.mark.parametrize(
    ("attributes", "refusal"),
    [
        ({"ttft_ms": "soon"}, Refusal.WRONG_TYPE),
        ({"ttft_ms": True}, Refusal.WRONG_TYPE),
        ({"ttft_ms": "-1"}, Refusal.WRONG_TYPE),
        ({"ttft_ms": "1e9"}, Refusal.WRONG_TYPE),
        ({"ttft_ms": "inf"}, Refusal.WRONG_TYPE),
        ({"ttft_ms": "٣"}, Refusal.WRONG_TYPE),
        ({"ttft_ms": "9" * 5_000}, Refusal.WRONG_TYPE),
        ({"ttft_ms": float("nan")}, Refusal.NOT_FINITE),
        ({"ttft_ms": -1}, Refusal.NEGATIVE),
        ({"ttft_ms": "999999999999999"}, Refusal.ABSURD_DURATION),
        ({"ttft_ms": "60000"}, Refusal.PARTS_DO_NOT_SUM),
        ({"avg_itl_ms": "60000"}, Refusal.PHASES_DO_NOT_SUM),
        ({"output_tokens": "1.5"}, Refusal.WRONG_TYPE),
        ({"output_tokens": "99999999999"}, Refusal.OUT_OF_RANGE),
        ({"input_tokens": "many"}, Refusal.WRONG_TYPE),
        ({"model": 7}, Refusal.WRONG_TYPE),
    ],
)
def test_an_invalid_value_is_refused(attributes: dict[str, Any], refusal: Refusal) -> None:
    batch = changed(**attributes)
    assert batch.empty
    assert batch.refused == {refusal: 1}


def test_a_number_may_also_be_sent_as_a_number() -> None:
    request = request_of(changed(ttft_ms=1.5, output_tokens=16, input_tokens=22.0))
    assert (request.ttft_s, request.output_tokens, request.prompt_tokens) == (0.0015, 16, 22)


def test_a_rounded_gap_does_not_make_the_decode_longer_than_the_request() -> None:
    exact = request_of(changed())
    assert exact.ttft_s is not None
    most_ms = (exact.e2e_s - exact.ttft_s) * 1e3 / 15
    request = request_of(changed(avg_itl_ms=f"{most_ms + 0.004:.2f}"))
    assert request.decode_s is not None
    assert request.decode_s <= exact.e2e_s - exact.ttft_s


def test_long_and_hostile_names_are_stored_in_safe_form() -> None:
    request = request_of(changed(model="m\x00" + "x" * 100_000, request_id="r" * 100_000))
    assert len(request.model or "") == 256
    assert "\x00" not in (request.model or "")
    assert len(request.request_id or "") < 300


@given(
    st.dictionaries(
        st.sampled_from(
            ["ttft_ms", "avg_itl_ms", "output_tokens", "input_tokens", "model", "request_id"]
        ),
        st.one_of(
            st.text(max_size=20), st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans()
        ),
    )
)
def test_any_value_is_read_or_refused(attributes: dict[str, Any]) -> None:
    """No value raises an exception, and no phase is longer than its request."""
    batch = changed(**attributes)
    assert len(batch.requests) + batch.refused.total() == 1
    for request in batch.requests:
        assert (request.ttft_s or 0.0) <= request.e2e_s + 1e-3
        assert (request.decode_s or 0.0) <= request.e2e_s


def test_a_span_that_ends_before_it_starts_is_refused() -> None:
    message = ExportTraceServiceRequest()
    span = Span(name="http-request", trace_id=b"t" * 16, span_id=b"s" * 8)
    span.start_time_unix_nano = NOW_UNIX_NS
    span.end_time_unix_nano = NOW_UNIX_NS - 1
    set_value(span, "uri", "/v1/completions")
    set_value(span, "target", "request_span")
    message.resource_spans.add().scope_spans.add().spans.append(span)
    assert read(message).refused == {Refusal.ENDS_BEFORE_START: 1}
