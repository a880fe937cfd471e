from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.drop_reasons import Refusal, Skip
from collector.normalise.batch import NormalisedBatch
from collector.normalise.spans import normalise_spans
from telemetry.application_operations import ApplicationOperation, Operation

NOW_UNIX_NS = 1_796_000_000 * 10**9
SECRET = "the tulips are red"


def message(
    *operations: str | None, process: str = "app-1", simulated: bool = False, **changes: Any
) -> ExportTraceServiceRequest:
    """Return a message with a span of 0.1 s for each operation name."""
    made = ExportTraceServiceRequest()
    group = made.resource_spans.add()
    labels = {"service.name": "app", "service.instance.id": process}
    group.resource.attributes.extend(
        KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in labels.items()
    )
    if simulated:
        group.resource.attributes.append(
            KeyValue(key="tailspan.simulated", value=AnyValue(bool_value=True))
        )
    spans = group.scope_spans.add().spans
    for number, operation in enumerate(operations):
        span = spans.add(
            **{
                "trace_id": b"t" * 16,
                "span_id": number.to_bytes(7) + b"s",
                "name": SECRET,
                "kind": Span.SPAN_KIND_INTERNAL,
                "start_time_unix_nano": NOW_UNIX_NS - 10**9,
                "end_time_unix_nano": NOW_UNIX_NS - 9 * 10**8,
                **changes,
            }
        )
        span.attributes.append(
            KeyValue(key="gen_ai.tool.call.arguments", value=AnyValue(string_value=SECRET))
        )
        if operation is not None:
            span.attributes.append(
                KeyValue(key="gen_ai.operation.name", value=AnyValue(string_value=operation))
            )
    return made


def read(made: ExportTraceServiceRequest) -> NormalisedBatch:
    return normalise_spans(made.SerializeToString(), NOW_UNIX_NS)


def operations(made: ExportTraceServiceRequest) -> list[ApplicationOperation]:
    return read(made).operations


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("retrieval", Operation.RETRIEVAL),
        ("execute_tool", Operation.TOOL),
        ("embeddings", Operation.EMBEDDINGS),
        ("invoke_agent", Operation.ENCLOSING),
        ("invoke_workflow", Operation.ENCLOSING),
        ("validation", Operation.VALIDATION),
        ("formatting", Operation.FORMATTING),
        (SECRET, Operation.OTHER),
    ],
)
def test_an_operation_is_kept_by_the_conventions_name(name: str, operation: Operation) -> None:
    """An unknown name becomes `other`, so that no text of a sender is stored."""
    batch = read(message(name))
    (found,) = batch.operations
    assert (found.operation, found.length_s, batch.accepted) == (operation, 0.1, 1)
    assert found.sent_unix_ns == NOW_UNIX_NS - 10**9
    assert SECRET not in str(found)
    assert not batch.skipped


def test_a_clients_span_is_a_request_and_an_operation_and_one_item() -> None:
    batch = read(message("chat", kind=Span.SPAN_KIND_CLIENT))
    (request,), (operation,) = list(batch.requests), batch.operations
    assert (operation.operation, operation.span_id) == (Operation.CALL, request.span_id)
    assert operation.at_unix_ns == request.received_unix_ns
    assert batch.accepted == 1


@pytest.mark.parametrize("name", ["chat", "generate_content", "", None])
def test_a_span_without_an_operation_around_the_model_is_skipped(name: str | None) -> None:
    """A framework's span around a client's span would count the same call twice."""
    batch = read(message(name))
    assert batch.skipped == {Skip.NOT_A_REQUEST: 1}
    assert not batch.operations


def test_a_name_that_is_no_text_is_skipped() -> None:
    made = message(None)
    made.resource_spans[0].scope_spans[0].spans[0].attributes.append(
        KeyValue(key="gen_ai.operation.name", value=AnyValue(int_value=7))
    )
    assert read(made).skipped == {Skip.NOT_A_REQUEST: 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"end_time_unix_nano": NOW_UNIX_NS - 2 * 10**9}, Refusal.ENDS_BEFORE_START),
        ({"end_time_unix_nano": NOW_UNIX_NS + 90_000 * 10**9}, Refusal.IN_THE_FUTURE),
        ({"start_time_unix_nano": 5}, Refusal.INSTANT_OUT_OF_RANGE),
        ({"start_time_unix_nano": NOW_UNIX_NS - 8 * 86_400 * 10**9}, Refusal.ABSURD_DURATION),
        ({"trace_id": b""}, Refusal.MISSING_ID),
        ({"span_id": b"\0" * 8}, Refusal.MISSING_ID),
    ],
)
def test_an_impossible_span_is_refused(changes: dict[str, Any], reason: Refusal) -> None:
    batch = read(message("retrieval", **changes))
    assert batch.refused == {reason: 1}
    assert not batch.operations


def test_the_process_is_that_of_all_labels_in_any_order() -> None:
    made, turned = message("retrieval"), message("retrieval")
    labels = [*turned.resource_spans[0].resource.attributes]
    del turned.resource_spans[0].resource.attributes[:]
    turned.resource_spans[0].resource.attributes.extend(reversed(labels))
    (one,), (same,) = operations(made), operations(turned)
    (other,) = operations(message("retrieval", process="app-2"))
    assert one.process == same.process != other.process
    assert len(one.process) == 16
    assert "app" not in one.process


def test_simulated_operations_are_marked() -> None:
    assert [each.simulated for each in operations(message("retrieval", simulated=True))] == [True]
