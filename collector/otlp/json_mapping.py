"""Convert OTLP's JSON to protobuf, so that the same code reads both formats.

The format is protobuf's JSON mapping, but ids are hexadecimal and unknown fields are ignored.

Source: OpenTelemetry protocol specification, "JSON Protobuf Encoding".
"""

import json
import re
from base64 import b64encode
from binascii import Error as HexError
from binascii import unhexlify
from typing import Any, Final

from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from google.protobuf.message import Message

from collector.errors import MalformedError, TooLargeError

MAX_VALUES: Final = 2**18
"""Maximum number of objects, arrays and values in one message. Each value takes at least 100 bytes
and 2.5 µs. 512 spans of the plugin have 94,000 values (0.3 s). The maximum takes 0.65 s."""

_IDS: Final = (
    ("traceId", "trace_id"),
    ("spanId", "span_id"),
    ("parentSpanId", "parent_span_id"),
)
_PATH: Final = re.compile(r"at ([\w.\[\]]{1,200})")


def from_json(kind: type[Message], body: bytes) -> bytes:
    """Return the JSON message in protobuf.

    Raises:
        MalformedError: the body is not JSON, or not a message of this class.
        TooLargeError: the message has more than `MAX_VALUES` values.
    """
    if body.count(b",") + body.count(b"{") + body.count(b"[") > MAX_VALUES:
        raise TooLargeError(f"more than {MAX_VALUES} values in a message; send smaller batches")
    try:
        given = json.loads(body.decode(), object_hook=_with_ids, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the body is not OTLP/JSON in UTF-8: {_words(error)}") from error
    message = kind()
    try:
        if not isinstance(given, dict):  # protobuf would accept an empty array
            raise ParseError("not an object")
        ParseDict(given, message, ignore_unknown_fields=True)
        return message.SerializeToString()
    # protobuf also raises OverflowError and SystemError. The exception may contain a prompt, so it
    # is left out of the error.
    except Exception as error:
        where = _PATH.search(str(error))
        raise MalformedError(
            f"the body is not valid JSON for {kind.DESCRIPTOR.full_name}"
            + (f"; error at {where[1]}" if where else "")
        ) from None


def to_json(message: Message) -> bytes:
    """A response as OTLP's JSON. Do not use it for spans, because it writes ids in base64."""
    return MessageToJson(message, indent=None).encode()


def _with_ids(given: dict[str, Any]) -> dict[str, Any]:
    for spellings in _IDS:
        for key in spellings:
            if key in given:
                given[key] = _base64(given[key], key)
    return given


def _base64(given: Any, key: str) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return b64encode(unhexlify(given)).decode()
    except (HexError, ValueError) as error:
        raise _IdError(f"{key} must be hexadecimal") from error


class _IdError(ValueError):
    pass


def _refuse(constant: str) -> None:
    raise _IdError(f'{constant} is not JSON; send a text, such as "NaN"')


def _words(error: Exception) -> str:
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} at character {error.pos}"
        case UnicodeDecodeError():
            return f"{error.reason} at byte {error.start}"
        case _IdError():
            return str(error)
        case RecursionError():
            return "nested too deeply"
        case _:
            return "a number is too long"
