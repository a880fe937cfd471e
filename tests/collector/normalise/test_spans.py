import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tailspan_vllm import names

from collector.drop_reasons import DroppedValue, Refusal, Skip
from collector.normalise.spans import normalise_spans
from telemetry.application_operations import Operation
from telemetry.requests import HELD_PARTS, PHASES, QUEUE_PARTS, Basis, Outcome, Source

Message = ExportTraceServiceRequest
Factory = Callable[..., Message]


def _span(message: Message) -> Span:
    return message.resource_spans[0].scope_spans[0].spans[0]


def _set(message: Message, name: str, **value: Any) -> None:
    span = _span(message)
    kept = [each for each in span.attributes if each.key != name]
    del span.attributes[:]
    span.attributes.extend([*kept, KeyValue(key=name, value=AnyValue(**value))])


def _drop(message: Message, name: str) -> None:
    span = _span(message)
    kept = [each for each in span.attributes if each.key != name]
    del span.attributes[:]
    span.attributes.extend(kept)


def test_a_request_arrives_as_it_was_recorded(trace_message: Factory, now_unix_ns: int) -> None:
    batch = normalise_spans(trace_message().SerializeToString(), now_unix_ns)
    [request] = batch.requests
    assert request.received_unix_ns == now_unix_ns - 100 * 10**9
    assert request.e2e_s == pytest.approx(1.5)
    assert [getattr(request, phase) for phase in PHASES] == pytest.approx(
        [0.05, 0.2, 0.25, 0.95, 0.05]
    )
    assert request.ttft_s == pytest.approx(0.51)
    assert (request.outcome, request.basis) == (Outcome.STOP, Basis.HTTP)
    assert (request.replica, request.region, request.tenant) == ("replica-1", "eu-north-1", "acme")
    assert (request.prompt_tokens, request.cached_tokens, request.output_tokens) == (512, 128, 20)
    assert request.external_cached_tokens == 32
    assert [getattr(request, part) for part in QUEUE_PARTS] == pytest.approx(
        [0.1, 0.0, 0.0, 0.06, 0.04]
    )
    assert [getattr(request, part) for part in HELD_PARTS] == pytest.approx([0.01, 0.02, 0.03])
    assert (request.kv_loaded_bytes, request.kv_loaded_tier) == (2**40, "host")
    assert request.others_prefill_tokens_max == 300
    assert (request.billed_s, request.wasted_s) == (0.3, 0.01)
    assert request.handoff_s == pytest.approx(0.004)
    assert request.source is Source.INSTRUMENTATION
    assert request.streamed is True
    assert request.lora is None
    assert (batch.accepted, batch.refused.total(), batch.skipped.total()) == (1, 0, 0)


def test_phases_that_did_not_begin_stay_unknown(trace_message: Factory, now_unix_ns: int) -> None:
    """If a client disconnects while its request is queued, decode is None and not 0."""
    message = trace_message(
        outcome="abort", scheduled=None, first_token=None, first_byte=None, last_token=None
    )
    [request] = normalise_spans(message.SerializeToString(), now_unix_ns).requests
    assert request.outcome is Outcome.ABORT
    assert request.queue_s == pytest.approx(1.45)
    assert (request.prefill_s, request.decode_s, request.ttft_s) == (None, None, None)


@pytest.mark.parametrize("wanted", [{"bool_value": True}, {"string_value": "true"}])
def test_simulated_telemetry_never_counts_as_real(
    trace_message: Factory, now_unix_ns: int, wanted: dict[str, Any]
) -> None:
    """The flag is a boolean, or a text if an environment variable sets the flag."""
    message = trace_message()
    message.resource_spans[0].resource.attributes.append(
        KeyValue(key=names.SIMULATED, value=AnyValue(**wanted))
    )
    [request] = normalise_spans(message.SerializeToString(), now_unix_ns).requests
    assert request.source is Source.SIMULATOR


def test_without_an_instance_id_the_replica_is_the_service_name(
    trace_message: Factory, now_unix_ns: int
) -> None:
    message = trace_message()
    attributes = message.resource_spans[0].resource.attributes
    kept = [each for each in attributes if each.key != names.SERVICE_INSTANCE_ID]
    del attributes[:]
    attributes.extend(kept)
    [request] = normalise_spans(message.SerializeToString(), now_unix_ns).requests
    assert request.replica == "vllm"


def test_other_spans_are_skipped_and_counted(trace_message: Factory, now_unix_ns: int) -> None:
    foreign = trace_message()
    foreign.resource_spans[0].scope_spans[0].scope.name = "vllm.tracing.otel"
    batch = normalise_spans(foreign.SerializeToString(), now_unix_ns)
    assert batch.skipped == {Skip.NOT_A_REQUEST: 1}
    assert batch.empty
    assert not batch.refused


def test_a_span_of_the_plugin_without_an_outcome_is_refused(
    trace_message: Factory, now_unix_ns: int
) -> None:
    message = trace_message()
    _drop(message, names.OUTCOME)
    batch = normalise_spans(message.SerializeToString(), now_unix_ns)
    assert batch.refused == {Refusal.MISSING_OUTCOME: 1}
    assert batch.complaint == "1 missing_outcome"
    assert batch.empty
    assert not batch.skipped


@pytest.mark.parametrize(
    ("status", "stored"),
    [
        *((100, 100), (599, 599), (99, None), (99999, None)),
        *((-1, None), (2**40, None), ("200", None), (200.0, None), (True, None)),
    ],
)
def test_an_invalid_http_status_is_dropped_and_its_request_kept(
    trace_message: Factory, now_unix_ns: int, status: Any, stored: int | None
) -> None:
    kinds = {int: "int_value", str: "string_value", float: "double_value", bool: "bool_value"}
    message = trace_message()
    _set(message, names.HTTP_STATUS_CODE, **{kinds[type(status)]: status})
    for _ in range(2):  # the second message is read from the cache
        batch = normalise_spans(message.SerializeToString(), now_unix_ns)
        [request] = batch.requests
        assert request.http_status == stored
        dropped = {} if stored is not None else {DroppedValue.HTTP_STATUS: 1}
        assert batch.dropped_values == dropped


def _end_before_start(message: Message) -> None:
    _span(message).end_time_unix_nano = _span(message).start_time_unix_nano - 1


def _eight_days(message: Message) -> None:
    span = _span(message)
    span.end_time_unix_nano = span.start_time_unix_nano + 8 * 86_400 * 10**9


def _starts_at(unix_ns: int) -> Callable[[Message], None]:
    def corrupt(message: Message) -> None:
        span = _span(message)
        length_ns = span.end_time_unix_nano - span.start_time_unix_nano
        span.start_time_unix_nano, span.end_time_unix_nano = unix_ns, unix_ns + length_ns

    return corrupt


def _id(name: str, value: bytes) -> Callable[[Message], None]:
    return lambda message: setattr(_span(message), name, value)


def _attribute(name: str, **value: Any) -> Callable[[Message], None]:
    return lambda message: _set(message, name, **value)


@pytest.mark.parametrize(
    ("corrupt", "reason"),
    [
        (_id("trace_id", b""), Refusal.MISSING_ID),
        (_id("trace_id", bytes(16)), Refusal.MISSING_ID),
        (_id("span_id", b""), Refusal.MISSING_ID),
        (_id("span_id", b"short"), Refusal.MISSING_ID),
        (_end_before_start, Refusal.ENDS_BEFORE_START),
        (_eight_days, Refusal.ABSURD_DURATION),
        (_starts_at(0), Refusal.INSTANT_OUT_OF_RANGE),
        (_starts_at(1_577_836_799 * 10**9), Refusal.INSTANT_OUT_OF_RANGE),
        (_starts_at(1_790_000_000 * 10**9 + 86_401 * 10**9), Refusal.IN_THE_FUTURE),
        (_starts_at(2**63), Refusal.IN_THE_FUTURE),
        (_attribute(names.OUTCOME, string_value="vanished"), Refusal.UNKNOWN_OUTCOME),
        (_attribute(names.OUTCOME, string_value=""), Refusal.UNKNOWN_OUTCOME),
        (_attribute(names.OUTCOME, int_value=1), Refusal.WRONG_TYPE),
        (_attribute(names.BASIS, string_value="hearsay"), Refusal.UNKNOWN_BASIS),
        (lambda message: _drop(message, names.BASIS), Refusal.UNKNOWN_BASIS),
        (lambda message: _drop(message, names.QUEUE), Refusal.PHASES_DO_NOT_SUM),
        (_attribute(names.QUEUE, double_value=0.2011), Refusal.PHASES_DO_NOT_SUM),
        (_attribute(names.DECODE_PARTS[0], double_value=9.0), Refusal.PARTS_DO_NOT_SUM),
        (_attribute(names.QUEUE_PARTS[1], double_value=0.1), Refusal.PARTS_DO_NOT_SUM),
        (_attribute(names.ENCODER, double_value=0.3), Refusal.PARTS_DO_NOT_SUM),
        (_attribute(names.HELD_PARTS[1], double_value=0.1), Refusal.PARTS_DO_NOT_SUM),
        (lambda message: _drop(message, names.PREFILL_PARTS[2]), Refusal.PARTS_DO_NOT_SUM),
        (_attribute(names.QUEUE, double_value=-0.2), Refusal.NEGATIVE),
        (_attribute(names.QUEUE, double_value=1e9), Refusal.ABSURD_DURATION),
        (_attribute(names.QUEUE, double_value=float("nan")), Refusal.NOT_FINITE),
        (_attribute(names.TTFT, double_value=float("inf")), Refusal.NOT_FINITE),
        (_attribute(names.ITL_MAX, string_value="0.08"), Refusal.WRONG_TYPE),
        (_attribute(names.OUTPUT_TOKENS, int_value=-1), Refusal.NEGATIVE),
        (_attribute(names.OUTPUT_TOKENS, double_value=20.0), Refusal.WRONG_TYPE),
        (_attribute(names.INPUT_TOKENS, int_value=2**40), Refusal.OUT_OF_RANGE),
        (_attribute(names.KV_USAGE_AT_ARRIVAL, double_value=40.0), Refusal.OUT_OF_RANGE),
        (_attribute(names.EXTERNAL_CACHED_BYTES, int_value=-1), Refusal.NEGATIVE),
        (_attribute(names.EXTERNAL_CACHED_BYTES, double_value=1.0), Refusal.WRONG_TYPE),
        (_attribute(names.EXTERNAL_CACHE_TIER, int_value=1), Refusal.WRONG_TYPE),
        (_attribute(names.STREAMED, string_value="yes"), Refusal.WRONG_TYPE),
        (_attribute(names.REQUEST_MODEL, bytes_value=b"llama"), Refusal.WRONG_TYPE),
        (_attribute(names.TENANT), Refusal.WRONG_TYPE),
    ],
)
def test_only_the_wrong_request_of_a_message_is_refused(
    trace_message: Factory, now_unix_ns: int, corrupt: Callable[[Message], None], reason: Refusal
) -> None:
    """The response contains the reason of the refusal."""
    message, good = trace_message(), trace_message()
    corrupt(message)
    message.resource_spans[0].scope_spans[0].spans.append(_span(good))
    batch = normalise_spans(message.SerializeToString(), now_unix_ns)
    assert batch.refused == {reason: 1}
    assert batch.complaint.startswith(f"1 {reason}")
    assert [request.span_id for request in batch.requests] == [_span(good).span_id.hex()]


@pytest.mark.parametrize(
    ("kinds", "stored"),
    [
        ((8, 2, 10), True),
        ((8, None, None), True),
        ((None, None, 20), True),
        ((8, 2, 11), False),
        ((8, 2, 9), False),
        ((21, None, None), False),
        ((15, None, 6), False),
    ],
)
def test_the_tokens_of_the_kinds_sum_to_the_output_tokens(
    trace_message: Factory, now_unix_ns: int, kinds: tuple[int | None, ...], stored: bool
) -> None:
    """The request has 20 output tokens."""
    message = trace_message()
    wires = (names.REASONING_OUTPUT_TOKENS, names.TOOL_CALL_TOKENS, names.CONTENT_TOKENS)
    for wire, tokens in zip(wires, kinds, strict=True):
        if tokens is None:
            _drop(message, wire)
        else:
            _set(message, wire, int_value=tokens)
    batch = normalise_spans(message.SerializeToString(), now_unix_ns)
    assert len(batch.requests) == stored
    assert batch.refused == ({} if stored else {Refusal.PARTS_DO_NOT_SUM: 1})


def test_a_rounding_of_the_phases_is_no_error(trace_message: Factory, now_unix_ns: int) -> None:
    message = trace_message()
    _set(message, names.QUEUE, double_value=0.2009)
    assert not normalise_spans(message.SerializeToString(), now_unix_ns).refused


def test_a_span_without_phases_is_kept(trace_message: Factory, now_unix_ns: int) -> None:
    message = trace_message()
    phases = (names.FRONTEND, names.QUEUE, names.PREFILL, names.DECODE, names.DELIVERY)
    for name in (
        *phases,
        *names.QUEUE_PARTS,
        *names.HELD_PARTS,
        *names.PREFILL_PARTS,
        *names.DECODE_PARTS,
    ):
        _drop(message, name)
    [request] = normalise_spans(message.SerializeToString(), now_unix_ns).requests
    assert all(getattr(request, phase) is None for phase in PHASES)


def test_hostile_texts_are_escaped(trace_message: Factory, now_unix_ns: int) -> None:
    message = trace_message()
    _set(message, names.TENANT, string_value="x" * 1_000_000)
    _set(message, names.HTTP_ROUTE, string_value="/v1\x00/chat")
    _set(message, names.LORA, string_value="")
    batch = normalise_spans(message.SerializeToString(), now_unix_ns)
    [request] = batch.requests
    assert request.tenant == "x" * 256
    assert request.route == "/v1\ufffd/chat"
    assert request.lora is None
    assert batch.truncated_texts == 1


LADDER = "16:k7O69Tjp"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"string_value": LADDER}, None),
        ({"string_value": "16:" + "A" * 4_000}, DroppedValue.LADDER_TOO_LONG),
        ({"string_value": ""}, DroppedValue.LADDER_MALFORMED),
        ({"string_value": "16:AAA"}, DroppedValue.LADDER_MALFORMED),
        ({"string_value": "16:k7O6\u00009Tjp"}, DroppedValue.LADDER_MALFORMED),
        ({"string_value": "16:ÄÖÜß"}, DroppedValue.LADDER_MALFORMED),
        ({"string_value": "16:a+/="}, DroppedValue.LADDER_MALFORMED),
        ({"bytes_value": LADDER.encode()}, DroppedValue.LADDER_WRONG_TYPE),
        ({"int_value": 16}, DroppedValue.LADDER_WRONG_TYPE),
        ({"double_value": float("nan")}, DroppedValue.LADDER_WRONG_TYPE),
        (
            {"array_value": ArrayValue(values=[AnyValue(int_value=1)])},
            DroppedValue.LADDER_WRONG_TYPE,
        ),
        ({}, DroppedValue.LADDER_WRONG_TYPE),
    ],
    ids=repr,
)
def test_an_invalid_ladder_is_dropped_and_its_request_kept(
    trace_message: Factory, now_unix_ns: int, value: dict[str, Any], reason: DroppedValue | None
) -> None:
    message = trace_message()
    _set(message, names.PREFIX_LADDER, **value)
    batch = normalise_spans(message.SerializeToString(), now_unix_ns)
    [request] = batch.requests
    assert request.prefix_ladder == (LADDER if reason is None else None)
    assert batch.dropped_values == ({} if reason is None else {reason: 1})
    assert not batch.refused
    assert batch.complaint == ("" if reason is None else f"1 {reason} (value dropped)")


def test_unknown_attributes_are_ignored(trace_message: Factory, now_unix_ns: int) -> None:
    """A newer instrumentation may send more attributes."""
    plain = trace_message()
    more = Message()
    more.CopyFrom(plain)
    _set(more, "tailspan.phase.teleport", double_value=float("nan"))
    assert (
        normalise_spans(more.SerializeToString(), now_unix_ns).requests
        == normalise_spans(plain.SerializeToString(), now_unix_ns).requests
    )


@given(st.binary(max_size=400))
def test_random_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        message = Message.FromString(body)
    except DecodeError:
        return
    normalise_spans(message.SerializeToString(), 1_790_000_000 * 10**9)


_ANY_VALUE = st.one_of(
    st.builds(lambda value: AnyValue(string_value=value), st.text(max_size=300)),
    st.builds(lambda value: AnyValue(double_value=value), st.floats()),
    st.builds(
        lambda value: AnyValue(int_value=value),
        st.integers(min_value=-(2**63), max_value=2**63 - 1),
    ),
    st.builds(lambda value: AnyValue(bool_value=value), st.booleans()),
    st.builds(lambda value: AnyValue(bytes_value=value), st.binary(max_size=20)),
    st.just(AnyValue()),
)
_NAMES = [value for name, value in vars(names).items() if name.isupper() and type(value) is str]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    changes=st.dictionaries(st.sampled_from(_NAMES), _ANY_VALUE, max_size=6),
    cut=st.tuples(st.integers(0, 10_000), st.integers(0, 255)),
    start=st.integers(0, 2**64 - 1),
    keep_start=st.booleans(),
)
def test_every_mutated_message_is_accounted_for(
    trace_message: Factory,
    now_unix_ns: int,
    changes: dict[str, AnyValue],
    cut: tuple[int, int],
    start: int,
    keep_start: bool,
) -> None:
    message = trace_message()
    for name, value in changes.items():
        _drop(message, name)
        _span(message).attributes.append(KeyValue(key=name, value=value))
    if not keep_start:
        _span(message).start_time_unix_nano = start
    body = bytearray(message.SerializeToString())
    at, byte = cut
    if at < len(body):
        body[at] = byte
    try:
        message = Message.FromString(bytes(body))
    except DecodeError:
        return
    batch = normalise_spans(message.SerializeToString(), now_unix_ns)
    spans = sum(
        len(scoped.spans) for group in message.resource_spans for scoped in group.scope_spans
    )
    assert batch.accepted + batch.skipped.total() + batch.refused.total() == spans
    # A span of another scope is an operation if its name is that of an operation.
    others = sum(each.operation is not Operation.CALL for each in batch.operations)
    assert len(batch.requests) + others == batch.accepted
    for request in batch.requests:
        phases = [getattr(request, phase) for phase in PHASES]
        known = [phase for phase in phases if phase is not None]
        assert not known or sum(known) == pytest.approx(request.e2e_s, abs=1e-3)
        for each in dataclasses.fields(request):
            value = getattr(request, each.name)
            assert not isinstance(value, str) or (len(value) <= 256 and "\x00" not in value)
            assert not isinstance(value, int | float) or 0 <= value < 2**63
