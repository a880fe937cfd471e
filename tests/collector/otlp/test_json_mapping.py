import json
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.errors import IntakeError, MalformedError, TooLargeError
from collector.normalise.spans import normalise_spans
from collector.otlp.json_mapping import MAX_VALUES, from_json

Message = Callable[..., ExportTraceServiceRequest]


def _json(message: ExportTraceServiceRequest, *, snake: bool) -> Any:
    """Return a message in OTLP's JSON: protobuf's JSON with other ids."""
    return _hexadecimal(
        MessageToDict(message, use_integers_for_enums=True, preserving_proto_field_name=snake)
    )


def _hexadecimal(given: Any) -> Any:
    if isinstance(given, list):
        return [_hexadecimal(each) for each in given]
    if not isinstance(given, dict):
        return given
    ids = ("traceid", "spanid", "parentspanid")
    return {
        key: b64decode(value).hex() if key.replace("_", "").lower() in ids else _hexadecimal(value)
        for key, value in given.items()
    }


@pytest.mark.parametrize("snake", [False, True], ids=["camelCase", "snake_case"])
def test_a_json_message_gives_the_same_rows(
    trace_message: Message, now_unix_ns: int, snake: bool
) -> None:
    message = trace_message()
    body = json.dumps(_json(message, snake=snake)).encode()
    binary = from_json(ExportTraceServiceRequest, body)
    assert ExportTraceServiceRequest.FromString(binary) == message
    [request] = normalise_spans(binary, now_unix_ns).requests
    assert request.trace_id == message.resource_spans[0].scope_spans[0].spans[0].trace_id.hex()


def test_unknown_fields_are_ignored_and_integers_need_not_be_text() -> None:
    """A newer sender adds fields, and some senders write 64-bit integers as numbers."""
    span = {"traceId": "AB" * 16, "spanId": "cd" * 8, "startTimeUnixNano": 5, "novelty": {"a": [1]}}
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}], "later": None}
    binary = from_json(ExportTraceServiceRequest, json.dumps(body).encode())
    [read] = ExportTraceServiceRequest.FromString(binary).resource_spans[0].scope_spans[0].spans
    assert (read.trace_id.hex(), read.span_id.hex(), read.start_time_unix_nano) == (
        "ab" * 16,
        "cd" * 8,
        5,
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not OTLP/JSON in UTF-8: Expecting value at character 0"),
        (b"{", "not OTLP/JSON"),
        (b"\xff{}", "invalid start byte at byte 0"),
        (b"[]", "not valid JSON for opentelemetry"),
        (b"null", "not valid JSON for opentelemetry"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 90_000, "nested too deeply"),
        (b'{"resourceSpans": NaN}', "NaN is not JSON"),
        (b'{"resourceSpans": ' + b"9" * 5000 + b"}", "a number is too long"),
        (b'{"resourceSpans": 5}', "not valid JSON for"),
        (b'{"\\ud800": 5}', "not valid JSON for"),
        (
            b'{"resourceSpans": [{"resource": {"attributes": [{"value": {"doubleValue": '
            + b"9" * 400
            + b"}}]}}]}",
            "not valid JSON for",
        ),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}', "hexadecimal"),
        (
            b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": 7}]}]}]}',
            "not valid JSON for",
        ),
    ],
)
def test_other_json_is_malformed(body: bytes, words: str) -> None:
    with pytest.raises(MalformedError, match=words):
        from_json(ExportTraceServiceRequest, body)


def test_an_error_repeats_no_value() -> None:
    """A value may be a prompt or a key."""
    wrong = {"startTimeUnixNano": "the prompt", "name": "x"}
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [wrong]}]}]}
    with pytest.raises(MalformedError) as refused:
        from_json(ExportTraceServiceRequest, json.dumps(body).encode())
    assert "prompt" not in str(refused.value)
    assert "startTimeUnixNano" in str(refused.value)


def test_more_values_than_fit_into_memory_are_refused_unread() -> None:
    """A span of three bytes in JSON has two hundred bytes when parsed."""
    with pytest.raises(TooLargeError, match="send smaller batches"):
        from_json(ExportTraceServiceRequest, b"[" + b"{}," * MAX_VALUES + b"{}]")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["resourceSpans", "scopeSpans", "spans", "traceId", "attributes", "key", "value"]
            )
            | st.text(max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(_JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    with suppress(IntakeError):
        from_json(ExportTraceServiceRequest, json.dumps(value).encode())
