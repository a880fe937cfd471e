"""A router's span becomes an operation, with its time to the first byte and its response."""

from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.drop_reasons import Refusal
from collector.normalise.batch import NormalisedBatch
from telemetry.application_operations import Operation
from tests.collector.normalise.test_operation_spans import message, read

FIRST = "gen_ai.response.time_to_first_chunk"


def routed(operation: str | None = "chat", first: Any = None, **changes: Any) -> NormalisedBatch:
    made = message(operation, **{"kind": Span.SPAN_KIND_SERVER, **changes})
    if first is not None:
        span = made.resource_spans[0].scope_spans[0].spans[0]
        span.attributes.append(KeyValue(key=FIRST, value=first))
    return read(made)


def test_a_servers_span_of_a_generation_is_a_router() -> None:
    (found,) = routed(first=AnyValue(double_value=0.04)).operations
    assert (found.operation, found.length_s, found.ttft_s) == (Operation.ROUTER, 0.1, 0.04)
    (unknown,) = routed().operations
    assert unknown.ttft_s is None


@pytest.mark.parametrize("scope", ["vllm.tracing.otel", "sglang server"])
def test_an_engines_own_span_is_no_router(scope: str) -> None:
    made = message("chat", kind=Span.SPAN_KIND_SERVER)
    made.resource_spans[0].scope_spans[0].scope.name = scope
    assert read(made).operations == []


@pytest.mark.parametrize(
    "name", ["gateway.request", "llm_d.pd_proxy.request", "llm_d.pd_proxy.POST /v1/completions"]
)
def test_the_spans_of_llm_d_are_recognised_by_name(name: str) -> None:
    (found,) = routed(None, name=name).operations
    assert found.operation is Operation.ROUTER
    inner = read(message(None, name=name, kind=Span.SPAN_KIND_INTERNAL))
    assert inner.operations == []


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (AnyValue(double_value=float("nan")), Refusal.NOT_FINITE),
        (AnyValue(double_value=-1.0), Refusal.NEGATIVE),
        (AnyValue(double_value=1e12), Refusal.ABSURD_DURATION),
        (AnyValue(string_value="soon"), Refusal.WRONG_TYPE),
        (AnyValue(double_value=0.102), Refusal.PARTS_DO_NOT_SUM),
    ],
)
def test_an_impossible_first_byte_is_refused(first: AnyValue, reason: Refusal) -> None:
    batch = routed(first=first)
    assert batch.operations == []
    assert batch.refused[reason] == 1


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("chatcmpl-1", "chatcmpl-1"),
        ("", None),
        ("x" * 10_000, "x" * 256),
    ],
)
def test_the_id_of_the_response_is_stored_within_limits(given: str, stored: str | None) -> None:
    made = message("chat", kind=Span.SPAN_KIND_SERVER)
    span = made.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.append(KeyValue(key="gen_ai.response.id", value=AnyValue(string_value=given)))
    (found,) = read(made).operations
    assert found.response_id == stored


def test_an_operation_of_an_application_has_no_response() -> None:
    made = message("execute_tool")
    span = made.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.append(KeyValue(key="gen_ai.response.id", value=AnyValue(string_value="r")))
    (found,) = read(made).operations
    assert found.response_id is None
