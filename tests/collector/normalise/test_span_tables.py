import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector.drop_reasons import Refusal, Skip
from collector.normalise.spans import normalise_spans
from telemetry.requests import FIELDS, Basis, Outcome, RequestTimeline, Source
from tests.cache_spans import value_of

SAMPLES = Path(__file__).parents[1] / "samples"
NOW_UNIX_NS = 1_796_000_000 * 10**9


def read(name: str) -> tuple[list[RequestTimeline], int]:
    requests: list[RequestTimeline] = []
    skipped = 0
    for each in json.loads((SAMPLES / name).read_text())["messages"]:
        batch = normalise_spans(
            ParseDict(each, ExportTraceServiceRequest()).SerializeToString(), NOW_UNIX_NS
        )
        assert not batch.refused
        requests += batch.requests
        skipped += batch.skipped[Skip.NOT_A_REQUEST]
    return requests, skipped


def span(scope: Any = "vllm.tracing.otel", name: Any = "llm_request", **changes: Any) -> Any:
    """Return a message with one vLLM span of 0.1 s; None omits an attribute."""
    attributes = {
        "gen_ai.latency.e2e": 0.1,
        "gen_ai.latency.time_to_first_token": 0.04,
        "gen_ai.latency.time_in_queue": 0.01,
        "gen_ai.latency.time_in_model_prefill": 0.02,
        "gen_ai.latency.time_in_model_decode": 0.05,
        "gen_ai.usage.prompt_tokens": 12,
        "gen_ai.usage.completion_tokens": 6,
        "gen_ai.request.max_tokens": 16,
        "gen_ai.request.id": "chatcmpl-1",
        **changes,
    }
    message = ExportTraceServiceRequest()
    scoped = message.resource_spans.add().scope_spans.add()
    scoped.scope.name = scope
    scoped.spans.append(
        Span(
            trace_id=b"t" * 16,
            span_id=b"s" * 8,
            name=name,
            kind=Span.SPAN_KIND_SERVER,
            start_time_unix_nano=NOW_UNIX_NS - 10**9,
            end_time_unix_nano=NOW_UNIX_NS - 10**9 + 10**8,
            attributes=[
                KeyValue(key=key, value=value_of(value))
                for key, value in attributes.items()
                if value is not None
            ],
        )
    )
    return message


def client(**changes: Any) -> Any:
    nothing: dict[str, Any] = dict.fromkeys(
        ("gen_ai.latency.e2e", "gen_ai.latency.time_to_first_token")
    )
    message = span("some.client", "chat tiny", **{**nothing, **changes})
    message.resource_spans[0].scope_spans[0].spans[0].kind = Span.SPAN_KIND_CLIENT
    return message


def one(message: Any) -> RequestTimeline:
    [request] = normalise_spans(message.SerializeToString(), NOW_UNIX_NS).requests
    return request


def test_vllms_own_spans_have_three_phases_of_five() -> None:
    requests, skipped = read("vllm-0.32.0.json")
    assert (len(requests), skipped) == (4, 2)
    for request in requests:
        assert (request.source, request.basis) == (Source.NATIVE, Basis.ENGINE)
        assert (request.frontend_s, request.delivery_s, request.model) == (None, None, None)
        assert (request.replica, request.region) == ("chat-0", "here")
        shown = [request.queue_s, request.prefill_s, request.decode_s]
        assert None not in shown
        assert sum(each for each in shown if each) <= request.e2e_s
        assert request.ttft_s is not None
        assert 0 < request.ttft_s <= request.e2e_s < 1
    chat, single, first, second = requests
    assert (chat.output_tokens, chat.outcome) == (8, Outcome.LENGTH)
    assert (single.output_tokens, single.decode_s, single.tpot_s) == (1, 0.0, None)
    assert first.trace_id == second.trace_id
    assert first.span_id != second.span_id
    assert (chat.request_id or "").startswith("chatcmpl-")


@pytest.mark.parametrize("scope", ["vllm.llm_engine", "vllm.tracing.otel"])
def test_either_scope_of_vllms_is_known(scope: str) -> None:
    """vLLM 0.12 to 0.15 has one scope name, and vLLM since 0.16 has another."""
    assert one(span(scope)).request_id == "chatcmpl-1"


@pytest.mark.parametrize(
    ("scope", "name"), [("vllm.tracing.otel", "Load model"), ("elsewhere", "llm_request"), ("", "")]
)
def test_an_unknown_span_is_skipped(scope: str, name: str) -> None:
    batch = normalise_spans(span(scope, name).SerializeToString(), NOW_UNIX_NS)
    assert batch.empty
    assert (batch.skipped, batch.refused) == ({Skip.NOT_A_REQUEST: 1}, {})


def test_nanoseconds_are_recognised_by_their_size() -> None:
    """Some forks of vLLM send nanoseconds instead of seconds."""
    request = one(
        span(
            **{
                "gen_ai.latency.e2e": 1e8,
                "gen_ai.latency.time_to_first_token": 4e7,
                "gen_ai.latency.time_in_queue": 900,
                "gen_ai.latency.time_in_model_prefill": 2e7,
                "gen_ai.latency.time_in_model_decode": 5e7,
            }
        )
    )
    assert (request.e2e_s, request.queue_s) == pytest.approx((0.1, 9e-7))


@pytest.mark.parametrize(
    "make",
    [
        partial(span, **{"gen_ai.latency.time_to_first_token": 0.102}),
        partial(
            client,
            **{
                "gen_ai.operation.name": "chat",
                "gen_ai.response.time_to_first_chunk": 350.0,  # milliseconds
            },
        ),
    ],
)
def test_a_ttft_above_the_duration_is_refused(make: Callable[[], Any]) -> None:
    batch = normalise_spans(make().SerializeToString(), NOW_UNIX_NS)
    assert not batch.requests
    assert batch.refused == {Refusal.PARTS_DO_NOT_SUM: 1}


def test_a_request_without_tokens_has_no_ttft() -> None:
    """For embeddings, the span computes latencies from a first token that does not exist."""
    request = one(
        span(
            **{
                "gen_ai.usage.completion_tokens": 0,
                "gen_ai.latency.time_to_first_token": 0.0,
                "gen_ai.latency.time_in_model_prefill": -5000.0,
                "gen_ai.latency.time_in_model_decode": 0.0,
            }
        )
    )
    assert (request.ttft_s, request.prefill_s, request.decode_s) == (None, None, None)
    assert (request.queue_s, request.e2e_s) == (0.01, 0.1)


def test_a_response_at_the_token_limit_has_the_outcome_length() -> None:
    """vLLM's span has no finish reason."""
    assert one(span()).outcome is Outcome.STOP
    assert one(span(**{"gen_ai.request.max_tokens": 6})).outcome is Outcome.LENGTH
    assert one(span(**{"gen_ai.request.max_tokens": None})).outcome is Outcome.STOP


def test_a_failed_span_is_an_error() -> None:
    message = span()
    message.resource_spans[0].scope_spans[0].spans[0].status.code = Status.STATUS_CODE_ERROR
    assert one(message).outcome is Outcome.ERROR


def test_the_spans_of_a_recorded_sglang_are_read() -> None:
    """Health checks are omitted. If a client leaves, the outcome is `abort`."""
    requests, skipped = read("sglang-0.5.23.json")
    assert (len(requests), skipped) == (6, 10)
    for request in requests:
        assert (request.source, request.basis) == (Source.NATIVE, Basis.ENGINE)
        assert (request.queue_s, request.prefill_s, request.model) == (None, None, "tiny")
        assert request.ttft_s is not None
        assert request.decode_s is not None
        assert request.ttft_s + request.decode_s == pytest.approx(request.e2e_s, abs=1e-3)
        assert not (request.request_id or "HEALTH").startswith("HEALTH")
    streamed, cached, left, *_, other_left = requests
    assert streamed.trace_id == "ab" * 16
    assert (streamed.prompt_tokens, streamed.output_tokens) == (22, 16)
    assert (cached.prompt_tokens, cached.cached_tokens) == (377, 376)
    assert [each.outcome for each in (cached, left, other_left)] == [
        *(Outcome.LENGTH, Outcome.ABORT, Outcome.ABORT)
    ]


def test_sglangs_prefill_is_not_read_because_it_contains_the_queue() -> None:
    """The "prefill" of SGLang's span begins when the scheduler receives the request."""
    request = one(
        span(
            "sglang server",
            "Req 5f1606033",
            **{
                "rid": "5f160603",
                "module": "sglang::request",
                "gen_ai.request.id": "5f160603",
                "gen_ai.response.model": "llama",
                "gen_ai.usage.cached_tokens": 8,
                "gen_ai.response.finish_reasons": '["length"]',
                "gen_ai.latency.time_in_queue": None,
            },
        )
    )
    assert (request.source, request.basis) == (Source.NATIVE, Basis.ENGINE)
    assert (request.queue_s, request.prefill_s, request.decode_s) == (None, None, 0.05)
    assert (request.model, request.cached_tokens) == ("llama", 8)
    assert (request.outcome, request.request_id) == (Outcome.LENGTH, "5f160603")


CLIENTS = {
    "opentelemetry-2.1b0.json": 3,
    "openllmetry-0.62.4.json": 5,
    "openllmetry-0.33.12.json": 4,
    "openlit-1.45.0.json": 3,
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_clients_spans_are_requests_seen_from_outside(name: str) -> None:
    """E2E includes the network, and there are no phases and no replica."""
    requests, _ = read(name)
    assert len(requests) == CLIENTS[name]
    for request in requests:
        assert (request.source, request.basis) == (Source.CLIENT, Basis.CLIENT)
        assert (request.replica, request.queue_s, request.decode_s) == (None, None, None)
        assert request.model in ("tiny", "missing")
        assert 0 < request.e2e_s < 1
    refused = [request for request in requests if request.model == "missing"]
    assert all(request.outcome is Outcome.ERROR for request in refused)
    assert requests[0].outcome is Outcome.STOP
    assert (requests[0].prompt_tokens, requests[0].output_tokens) == (11, 4)


@pytest.mark.parametrize("name", [name for name in CLIENTS if "opentelemetry" not in name])
def test_a_streamed_answers_first_chunk_is_its_ttft(name: str) -> None:
    """OpenLIT has an attribute for the first chunk, and OpenLLMetry has an event per chunk.

    The endpoint of the recording waited 30 ms.
    """
    streamed = [
        request for request in read(name)[0] if request.streamed and request.operation == "chat"
    ]
    assert streamed
    for request in streamed:
        assert request.ttft_s is not None
        assert 0.03 <= request.ttft_s < request.e2e_s


@pytest.mark.parametrize("name", [*CLIENTS, "vllm-0.32.0.json"])
def test_no_prompt_and_no_answer_is_kept(name: str) -> None:
    for request in read(name)[0]:
        row = " ".join(str(getattr(request, field)) for field in FIELDS)
        assert "tulips" not in row
        assert "one two" not in row


@pytest.mark.parametrize("operation", ["execute_tool", "invoke_agent", "embeddings", ""])
def test_a_span_without_tokens_is_not_a_request(operation: str) -> None:
    """A tool call or an agent's turn contains requests, but is no request."""
    batch = normalise_spans(
        client(**{"gen_ai.operation.name": operation}).SerializeToString(), NOW_UNIX_NS
    )
    assert not batch.requests
    assert batch.skipped[Skip.NOT_A_REQUEST] == 1 - len(batch.operations)


def test_a_clients_first_chunk_attribute_is_preferred() -> None:
    request = one(
        client(
            **{
                "gen_ai.operation.name": "chat",
                "gen_ai.response.time_to_first_chunk": 0.03,
                "gen_ai.server.time_to_first_token": 0.09,
            }
        )
    )
    assert request.ttft_s == 0.03


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gen_ai.latency.e2e": -0.1}, Refusal.NEGATIVE),
        ({"gen_ai.latency.e2e": float("nan")}, Refusal.NOT_FINITE),
        ({"gen_ai.latency.e2e": "0.1"}, Refusal.WRONG_TYPE),
        ({"gen_ai.latency.e2e": True}, Refusal.WRONG_TYPE),
        ({"gen_ai.latency.e2e": 1e300}, Refusal.ABSURD_DURATION),
        ({"gen_ai.latency.time_in_queue": 0.2}, Refusal.PHASES_DO_NOT_SUM),
        ({"gen_ai.usage.prompt_tokens": -1}, Refusal.NEGATIVE),
        ({"gen_ai.usage.prompt_tokens": 1.5}, Refusal.WRONG_TYPE),
        ({"gen_ai.usage.prompt_tokens": 2**40}, Refusal.OUT_OF_RANGE),
        ({"gen_ai.usage.prompt_tokens": [1]}, Refusal.WRONG_TYPE),
    ],
)
def test_a_wrong_span_is_refused_with_its_reason(changes: dict[str, Any], reason: Refusal) -> None:
    batch = normalise_spans(span(**changes).SerializeToString(), NOW_UNIX_NS)
    assert batch.refused == {reason: 1}
    assert batch.empty


def test_a_missing_id_or_a_backward_span_is_refused() -> None:
    nameless, backward = span(), span()
    nameless.resource_spans[0].scope_spans[0].spans[0].trace_id = b""
    backward.resource_spans[0].scope_spans[0].spans[0].end_time_unix_nano = 1
    assert normalise_spans(nameless.SerializeToString(), NOW_UNIX_NS).refused == {
        Refusal.MISSING_ID: 1
    }
    assert normalise_spans(backward.SerializeToString(), NOW_UNIX_NS).refused == {
        Refusal.ENDS_BEFORE_START: 1
    }


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.text(max_size=5), max_size=3),
    st.just("[" * 5000),
)
NAMES = st.sampled_from(
    [
        "gen_ai.latency.e2e",
        "gen_ai.latency.time_in_queue",
        "gen_ai.usage.completion_tokens",
        "gen_ai.request.max_tokens",
        "gen_ai.response.finish_reasons",
        "gen_ai.request.id",
        "gen_ai.request.stream",
        "gen_ai.operation.name",
        "error.type",
    ]
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    make=st.sampled_from([span, client]),
    scope=st.sampled_from(["vllm.tracing.otel", "sglang server", "x"]),
    changes=st.dictionaries(NAMES, VALUES, max_size=5),
)
def test_no_decodable_span_raises(
    make: Callable[..., Any], scope: str, changes: dict[str, Any]
) -> None:
    message = make(**changes)
    message.resource_spans[0].scope_spans[0].scope.name = scope
    batch = normalise_spans(message.SerializeToString(), NOW_UNIX_NS)
    assert batch.accepted + batch.skipped.total() + batch.refused.total() == 1


@pytest.mark.parametrize(
    ("name", "value", "tokens"),
    [
        ("gen_ai.usage.reasoning.output_tokens", 4, 4),
        ("gen_ai.usage.reasoning_tokens", 4.0, 4),
        ("gen_ai.usage.reasoning.output_tokens", None, None),
    ],
)
def test_a_calls_reasoning_tokens_are_stored(name: str, value: Any, tokens: int | None) -> None:
    message = client(**{"gen_ai.operation.name": "chat", name: value})
    assert one(message).reasoning_tokens == tokens


@pytest.mark.parametrize("value", ["many", -1, float("nan"), [4], 2**40])
def test_impossible_reasoning_tokens_refuse_the_span(value: Any) -> None:
    name = "gen_ai.usage.reasoning.output_tokens"
    message = client(**{"gen_ai.operation.name": "chat", name: value})
    batch = normalise_spans(message.SerializeToString(), NOW_UNIX_NS)
    assert not batch.requests
    assert batch.refused.total() == 1
