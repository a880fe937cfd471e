import http.client
import time
from dataclasses import replace

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)

from collector.drop_reasons import Refusal
from collector.normalise.batch import NormalisedBatch
from collector.rows import operation_limits
from collector.rows.age_limit import AgeLimit
from collector.rows.operation_limits import OperationLimits
from collector.rows.sender_clocks import SenderClocks
from collector.server import Collector
from collector.testing import MemorySink, running
from telemetry.application_operations import MAX_PER_TRACE, ApplicationOperation, Operation
from tests.collector.normalise.test_operation_spans import message

NOW_NS = 1_790_000_000 * 10**9
HOUR_NS = 3_600 * 10**9


def operation(number: int = 0, trace: int = 1, **about: object) -> ApplicationOperation:
    plain = ApplicationOperation(
        trace_id=f"{trace:032x}",
        span_id=f"{number:016x}",
        at_unix_ns=NOW_NS - 10**9,
        operation=Operation.TOOL,
        length_s=0.5,
        process="p",
    )
    return replace(plain, **about)  # type: ignore[arg-type]


def kept(limits: OperationLimits, *rows: ApplicationOperation) -> NormalisedBatch:
    batch = NormalisedBatch(operations=list(rows), accepted=len(rows))
    limits(batch, NOW_NS)
    return batch


def test_a_huge_trace_keeps_its_first_operations() -> None:
    """The operations may arrive in several messages. Other traces are not affected."""
    limits = OperationLimits()
    first = kept(limits, *(operation(number) for number in range(200)))
    assert len(first.operations) == 200
    rest = kept(limits, *(operation(number) for number in range(200, 20_000)))
    assert len(first.operations) + len(rest.operations) == MAX_PER_TRACE
    assert rest.refused == {Refusal.TOO_MANY_OPERATIONS: 19_800 - len(rest.operations)}
    assert rest.accepted == len(rest.operations)
    assert "at most 256 of one trace" in rest.complaint
    assert len(kept(limits, operation(1, trace=2)).operations) == 1


def test_a_repeated_span_is_not_counted_again() -> None:
    limits = OperationLimits()
    rows = [operation(number) for number in range(MAX_PER_TRACE)]
    for _ in range(3):
        assert len(kept(limits, *rows).operations) == MAX_PER_TRACE


def test_a_call_beyond_the_limit_still_counts_as_a_request() -> None:
    limits = OperationLimits()
    kept(limits, *(operation(number) for number in range(MAX_PER_TRACE)))
    batch = NormalisedBatch(operations=[operation(999, operation=Operation.CALL)], accepted=1)
    limits(batch, NOW_NS)
    assert (batch.operations, batch.accepted, batch.refused) == ([], 1, {})


def test_the_memory_is_bounded_for_any_number_of_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_limits, "MAX_REMEMBERED", 1_000)
    limits = OperationLimits()
    for trace in range(5_000):
        kept(limits, operation(1, trace), operation(2, trace))
    assert sum(map(len, limits._traces.values())) <= 1_000
    assert limits._remembered <= 1_000


def test_the_collector_stores_only_the_first_operations_of_a_huge_trace() -> None:
    """The sender gets a partial success, so it does not send the rest again."""
    made = message(*["execute_tool"] * 3_000)
    for group in made.resource_spans[0].scope_spans[0].spans:
        group.start_time_unix_nano = time.time_ns() - 10**9
        group.end_time_unix_nano = time.time_ns()
    sink = MemorySink()
    with running(Collector(sink, grpc_port=0, http_port=0)) as collector:
        connection = http.client.HTTPConnection("127.0.0.1", collector.http_port, timeout=30)
        headers = {"content-type": "application/x-protobuf"}
        connection.request("POST", "/v1/traces", made.SerializeToString(), headers)
        response = connection.getresponse()
        answer = ExportTraceServiceResponse.FromString(response.read())
        connection.close()
    assert response.status == 200
    assert answer.partial_success.rejected_spans == 3_000 - MAX_PER_TRACE
    assert "too_many_operations" in answer.partial_success.error_message
    assert len(sink.operations) == MAX_PER_TRACE


def test_old_operations_are_refused_and_calls_are_counted_as_requests_only() -> None:
    old = NOW_NS - 3 * HOUR_NS
    batch = NormalisedBatch(
        operations=[
            operation(1),
            operation(2, at_unix_ns=old),
            operation(3, at_unix_ns=old, operation=Operation.CALL),
        ],
        accepted=2,
    )
    AgeLimit(2 * HOUR_NS)(batch, NOW_NS)
    assert [each.span_id for each in batch.operations] == [f"{1:016x}"]
    assert (batch.accepted, batch.refused) == (1, {Refusal.TOO_OLD: 1})


def test_a_fast_clock_is_set_back_and_the_senders_instants_stay_known() -> None:
    """Two rows may get different corrections, so durations are computed from the sender's
    uncorrected times."""
    ahead_ns = 600 * 10**9
    rows = [operation(1, at_unix_ns=NOW_NS + ahead_ns), operation(2, at_unix_ns=NOW_NS - HOUR_NS)]
    batch = NormalisedBatch(operations=rows, accepted=2)
    SenderClocks()(batch, NOW_NS)
    first, second = batch.operations
    assert first.at_unix_ns + first.length_s * 1e9 == NOW_NS
    assert first.clock_ahead_s is not None
    assert [first.sent_unix_ns, second.sent_unix_ns] == [each.at_unix_ns for each in rows]
    far = NormalisedBatch(operations=[operation(3, at_unix_ns=NOW_NS + 48 * HOUR_NS)], accepted=1)
    SenderClocks()(far, NOW_NS)
    assert (far.operations, far.accepted) == ([], 0)
