"""Engine starts at the door: whole ones are kept, wrong ones are refused with a reason."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from tailspan_vllm import names

from collector.normalise.events import MOST_ARGUMENTS, normalise_events
from collector.reasons import Refusal, Skip
from telemetry.starts import read

Message = Callable[..., ExportLogsServiceRequest]


def record_of(message: ExportLogsServiceRequest) -> Any:
    """The one log record of a message."""
    return message.resource_logs[0].scope_logs[0].log_records[0]


def without(message: ExportLogsServiceRequest, name: str) -> ExportLogsServiceRequest:
    """The message without an attribute, of its record or its resource."""
    for bearer in (record_of(message), message.resource_logs[0].resource):
        kept = [pair for pair in bearer.attributes if pair.key != name]
        del bearer.attributes[:]
        bearer.attributes.extend(kept)
    return message


def test_a_start_is_told_whole(events_message: Message, now_unix_ns: int) -> None:
    """Who, since when, on what, and each argument with its type."""
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
    """The engine was there before."""
    message = events_message(at_unix_ns=now_unix_ns - 10**9)
    (start,) = normalise_events(message.SerializeToString(), now_unix_ns).starts
    assert start.loading_s is None


def test_an_event_may_bear_its_name_as_an_attribute(
    events_message: Message, now_unix_ns: int
) -> None:
    """As senders do whose protocol has no field for it yet."""
    message = events_message()
    record_of(message).event_name = ""
    name = AnyValue(string_value=names.ENGINE_STARTED)
    record_of(message).attributes.append(KeyValue(key=names.EVENT_NAME, value=name))
    assert len(normalise_events(message.SerializeToString(), now_unix_ns).starts) == 1


def test_other_records_are_skipped(events_message: Message, now_unix_ns: int) -> None:
    """Another scope's, and ours under a name that this version does not know."""
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
def test_what_lacks_its_key_is_refused(
    events_message: Message, now_unix_ns: int, name: str, reason: Refusal
) -> None:
    """By the name of what is missing."""
    batch = normalise_events(without(events_message(), name).SerializeToString(), now_unix_ns)
    assert not batch.starts
    assert batch.refused == {reason: 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"at_unix_ns": 0}, Refusal.INSTANT_OUT_OF_RANGE),
        ({"arguments": {"a": math.nan}}, Refusal.NOT_FINITE),
        ({"arguments": {str(n): n for n in range(MOST_ARGUMENTS + 1)}}, Refusal.TOO_MANY_ARGUMENTS),
    ],
)
def test_what_is_absurd_is_refused(
    events_message: Message, now_unix_ns: int, changes: dict[str, Any], reason: Refusal
) -> None:
    """An unset clock, a number that is none, arguments without end."""
    assert normalise_events(events_message(**changes).SerializeToString(), now_unix_ns).refused == {
        reason: 1
    }


def test_an_argument_that_is_no_scalar_is_refused(
    events_message: Message, now_unix_ns: int
) -> None:
    """A map would need columns that nobody has."""
    message = events_message()
    value = AnyValue(kvlist_value=KeyValueList())
    record_of(message).attributes.append(KeyValue(key=f"{names.ARGUMENT}a", value=value))
    assert normalise_events(message.SerializeToString(), now_unix_ns).refused == {
        Refusal.WRONG_TYPE: 1
    }


def test_an_endless_text_is_cut(events_message: Message, now_unix_ns: int) -> None:
    """An argument's value as its name."""
    batch = normalise_events(
        events_message(arguments={"n" * 999: "v" * 999}).SerializeToString(), now_unix_ns
    )
    assert read(batch.starts[0].arguments) == {"n" * 256: "v" * 256}
    assert batch.truncated_texts == 1  # the instrumentation has cut the value itself


@given(st.binary(max_size=200))
def test_whatever_decodes_is_kept_skipped_or_refused(body: bytes) -> None:
    """Nothing raises but the decoder."""
    message = ExportLogsServiceRequest()
    try:
        message.MergeFromString(body)
    except Exception:
        return
    batch = normalise_events(message.SerializeToString(), 1_790_000_000 * 10**9)
    records = sum(len(s.log_records) for g in message.resource_logs for s in g.scope_logs)
    assert batch.accepted + batch.skipped.total() + batch.refused.total() == records
