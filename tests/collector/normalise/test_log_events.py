import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from tailspan_vllm import names

from collector.drop_reasons import Refusal, Skip
from collector.normalise.log_events import MAX_ARGUMENTS, normalise_events
from collector.rows.sender_clocks import SenderClocks
from telemetry.starts import read

Message = Callable[..., ExportLogsServiceRequest]


def record_of(message: ExportLogsServiceRequest) -> Any:
    return message.resource_logs[0].scope_logs[0].log_records[0]


def without(message: ExportLogsServiceRequest, name: str) -> ExportLogsServiceRequest:
    for bearer in (record_of(message), message.resource_logs[0].resource):
        kept = [pair for pair in bearer.attributes if pair.key != name]
        del bearer.attributes[:]
        bearer.attributes.extend(kept)
    return message


def test_a_start_is_read_in_full(events_message: Message, now_unix_ns: int) -> None:
    batch = normalise_events(events_message().SerializeToString(), now_unix_ns)
    (start,) = batch.starts
    assert batch.accepted == 1
    assert (start.replica, start.engine, start.process) == ("replica-1", 0, 4242)
    assert (start.config, start.model, start.version) == ("c0ffee00", "llama", "0.32.0")
    assert (start.region, start.simulated) == ("eu-north-1", False)
    assert start.at_unix_ns == now_unix_ns - 60 * 10**9
    assert read(start.arguments) == {
        "scheduler.max_num_seqs": 16,
        "scheduler.policy": "fcfs",
        "cache.enable_prefix_caching": True,
        "cache.gpu_memory_utilization": 0.9,
    }
    assert (start.device, start.gpus) == ("NVIDIA H100 80GB HBM3", 2)
    assert read(start.shape or "") == {"layers": 32}
    assert start.loading_s == 95.5


def test_a_change_of_configuration_has_loaded_nothing(
    events_message: Message, now_unix_ns: int
) -> None:
    message = events_message(at_unix_ns=now_unix_ns - 10**9)
    (start,) = normalise_events(message.SerializeToString(), now_unix_ns).starts
    assert start.loading_s is None


def test_the_name_of_an_event_may_be_an_attribute(
    events_message: Message, now_unix_ns: int
) -> None:
    """Older versions of OTLP have no field for the name of an event."""
    message = events_message()
    record_of(message).event_name = ""
    name = AnyValue(string_value=names.ENGINE_STARTED)
    record_of(message).attributes.append(KeyValue(key=names.EVENT_NAME, value=name))
    assert len(normalise_events(message.SerializeToString(), now_unix_ns).starts) == 1


def test_other_records_are_skipped(events_message: Message, now_unix_ns: int) -> None:
    message = events_message()
    record_of(message).event_name = "tailspan.engine.danced"
    stranger = message.resource_logs[0].scope_logs.add()
    stranger.log_records.add()
    batch = normalise_events(message.SerializeToString(), now_unix_ns)
    assert not batch.starts
    assert batch.skipped == {Skip.NOT_AN_EVENT: 2}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (names.ENGINE, Refusal.MISSING_ENGINE),
        (names.CONFIG, Refusal.MISSING_CONFIG),
        (names.PROCESS_PID, Refusal.MISSING_PROCESS),
    ],
)
def test_a_start_without_a_key_is_refused(
    events_message: Message, now_unix_ns: int, name: str, reason: Refusal
) -> None:
    batch = normalise_events(without(events_message(), name).SerializeToString(), now_unix_ns)
    assert not batch.starts
    assert batch.refused == {reason: 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"at_unix_ns": 0}, Refusal.INSTANT_OUT_OF_RANGE),
        ({"arguments": {"a": math.nan}}, Refusal.NOT_FINITE),
        ({"arguments": {str(n): n for n in range(MAX_ARGUMENTS + 1)}}, Refusal.TOO_MANY_ARGUMENTS),
    ],
)
def test_an_impossible_start_is_refused(
    events_message: Message, now_unix_ns: int, changes: dict[str, Any], reason: Refusal
) -> None:
    assert normalise_events(events_message(**changes).SerializeToString(), now_unix_ns).refused == {
        reason: 1
    }


def test_an_argument_that_is_no_scalar_is_refused(
    events_message: Message, now_unix_ns: int
) -> None:
    message = events_message()
    value = AnyValue(kvlist_value=KeyValueList())
    record_of(message).attributes.append(KeyValue(key=f"{names.ARGUMENT}a", value=value))
    assert normalise_events(message.SerializeToString(), now_unix_ns).refused == {
        Refusal.WRONG_TYPE: 1
    }


def test_an_endless_text_is_cut(events_message: Message, now_unix_ns: int) -> None:
    batch = normalise_events(
        events_message(arguments={"n" * 999: "v" * 999}).SerializeToString(), now_unix_ns
    )
    assert read(batch.starts[0].arguments) == {"n" * 256: "v" * 256}
    assert batch.truncated_texts == 1  # the instrumentation truncated the value


@given(st.binary(max_size=200))
def test_every_decodable_event_is_stored_skipped_or_refused(body: bytes) -> None:
    message = ExportLogsServiceRequest()
    try:
        message.MergeFromString(body)
    except Exception:
        return
    batch = normalise_events(message.SerializeToString(), 1_790_000_000 * 10**9)
    records = sum(len(s.log_records) for g in message.resource_logs for s in g.scope_logs)
    assert batch.accepted + batch.skipped.total() + batch.refused.total() == records


def a_report(now_unix_ns: int, **about: Any) -> ExportLogsServiceRequest:
    """Return the report of a request in flight for 20 s.

    The given attributes are replaced; None removes an attribute.
    """
    given: dict[str, Any] = {
        names.SERVICE_INSTANCE_ID: "replica-1",
        names.IN_FLIGHT_AGE: 20.0,
        names.REPORTED_IN_FLIGHT: 10.0,
        names.TENANT: "acme",
        "trace_id": bytes(range(16)),
        "span_id": bytes(range(8)),
        "seen_unix_ns": now_unix_ns,
        **about,
    }
    message = ExportLogsServiceRequest()
    group = message.resource_logs.add()
    replica = given.pop(names.SERVICE_INSTANCE_ID)
    if replica is not None:
        value = AnyValue(string_value=replica)
        group.resource.attributes.append(KeyValue(key=names.SERVICE_INSTANCE_ID, value=value))
    scoped = group.scope_logs.add()
    scoped.scope.name = names.SCOPE
    record = scoped.log_records.add()
    record.event_name = names.REQUEST_IN_FLIGHT
    record.trace_id, record.span_id = given.pop("trace_id"), given.pop("span_id")
    record.time_unix_nano = given.pop("seen_unix_ns")
    for name, each in given.items():
        if each is not None:
            kind = "string_value" if isinstance(each, str) else "double_value"
            record.attributes.append(KeyValue(key=name, value=AnyValue(**{kind: each})))
    return message


def test_a_request_in_flight_is_read_with_its_ages(now_unix_ns: int) -> None:
    """The report's time and age give the time of receipt."""
    batch = normalise_events(a_report(now_unix_ns).SerializeToString(), now_unix_ns)
    (report,) = batch.in_flight
    assert (batch.accepted, batch.empty) == (1, False)
    assert report.received_unix_ns == now_unix_ns - 20 * 10**9
    assert (report.age_s, report.reported_in_flight_s, report.ttft_s) == (20.0, 10.0, None)
    assert (report.replica, report.tenant) == ("replica-1", "acme")
    assert report.trace_id == bytes(range(16)).hex()


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({names.IN_FLIGHT_AGE: None}, Refusal.MISSING_VALUE),
        ({names.IN_FLIGHT_AGE: 4.0, names.REPORTED_IN_FLIGHT: None}, Refusal.TOO_YOUNG),
        ({names.IN_FLIGHT_AGE: -20.0}, Refusal.NEGATIVE),
        ({names.IN_FLIGHT_AGE: math.nan}, Refusal.NOT_FINITE),
        ({names.IN_FLIGHT_AGE: 1e300}, Refusal.ABSURD_DURATION),
        ({names.IN_FLIGHT_AGE: "20"}, Refusal.WRONG_TYPE),
        ({names.REPORTED_IN_FLIGHT: 21.0}, Refusal.PARTS_DO_NOT_SUM),
        ({names.TTFT: 21.0}, Refusal.PARTS_DO_NOT_SUM),
        ({names.TENANT: 1.0}, Refusal.WRONG_TYPE),
        ({names.SERVICE_INSTANCE_ID: None}, Refusal.MISSING_REPLICA),
        ({"span_id": bytes(8)}, Refusal.MISSING_ID),
        ({"trace_id": b"short"}, Refusal.MISSING_ID),
        ({"seen_unix_ns": 0}, Refusal.INSTANT_OUT_OF_RANGE),
        ({"seen_unix_ns": 2**63}, Refusal.IN_THE_FUTURE),
    ],
)
def test_a_report_that_cannot_be_true_is_refused(
    now_unix_ns: int, about: dict[str, Any], reason: Refusal
) -> None:
    batch = normalise_events(a_report(now_unix_ns, **about).SerializeToString(), now_unix_ns)
    assert batch.refused == {reason: 1}
    assert batch.empty


def test_a_report_of_a_young_request_names_the_limit(now_unix_ns: int) -> None:
    about = {names.IN_FLIGHT_AGE: 4.0, names.REPORTED_IN_FLIGHT: None}
    batch = normalise_events(a_report(now_unix_ns, **about).SerializeToString(), now_unix_ns)
    assert batch.complaint == "1 too_young (a request in flight is reported only after 5 s)"


def test_a_row_and_its_report_get_the_same_correction(now_unix_ns: int) -> None:
    """The sender's clock is fast. The row and its report must still have the same key."""
    clocks, ahead_ns = SenderClocks(), 100 * 10**9
    for turn in range(4):
        seen_unix_ns = now_unix_ns + ahead_ns + turn * 10**9
        body = a_report(now_unix_ns, seen_unix_ns=seen_unix_ns).SerializeToString()
        batch = normalise_events(body, now_unix_ns)
        clocks(batch, now_unix_ns + turn * 10**9)
        (report,) = batch.in_flight
        assert report.clock_ahead_s == pytest.approx(100)
        assert report.seen_unix_ns == pytest.approx(now_unix_ns + turn * 10**9)
        assert report.age_s == 20.0


def test_the_request_trace_of_a_dynamo_is_skipped() -> None:
    """The front end's spans already describe the requests in this trace."""
    sample = Path(__file__).parents[1] / "samples" / "dynamo-1.6.1-request-trace.json"
    (given,) = json.loads(sample.read_text())["messages"]
    message = ParseDict(given, ExportLogsServiceRequest())
    batch = normalise_events(message.SerializeToString(), 1_796_000_000 * 10**9)
    assert batch.empty
    assert batch.skipped == {Skip.NOT_AN_EVENT: 1}
