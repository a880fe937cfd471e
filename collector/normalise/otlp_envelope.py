"""Decode OTLP messages level by level, so that only one item at a time is a Python object.

An empty span takes 2 bytes in a message, but 150 bytes when decoded. In all signals, resources
contain scopes, and scopes contain items. So one schema (the outline) decodes the messages of all
signals. It leaves nested messages encoded, as `bytes`.

Source: opentelemetry-proto, collector/*/v1/*_service.proto; protobuf "Encoding".
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Described
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClassesForFiles
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

from collector.errors import MalformedError, TooLargeError

MAX_PARTS: Final = 2**14
"""Maximum number of resources, scopes, items and data points together in a message. Exporters send
512 items, an OpenTelemetry Collector 8,192 (the default `send_batch_size`)."""
MAX_PART_BYTES: Final = 2**20
"""Maximum size in bytes of a resource, scope or item. The plugin's items have about 2 kB."""
MAX_ATTRIBUTES: Final = 1024
"""Maximum number of attributes of a resource, item or data point. SDKs keep 128 by default. An item
of 1 MiB could have half a million empty attributes."""

_ONE, _MANY = Described.LABEL_OPTIONAL, Described.LABEL_REPEATED
_BYTES, _FIXED64 = Described.TYPE_BYTES, Described.TYPE_FIXED64

_OUTLINES: Final = {
    "Envelope": (("groups", 1, _MANY, _BYTES),),
    "Group": (("resource", 1, _ONE, _BYTES), ("scoped", 2, _MANY, _BYTES)),
    "Scoped": (("scope", 1, _ONE, _BYTES), ("items", 2, _MANY, _BYTES)),
    "Span": (
        ("trace_id", 1, _ONE, _BYTES),
        ("span_id", 2, _ONE, _BYTES),
        ("start_time_unix_nano", 7, _ONE, _FIXED64),
        ("end_time_unix_nano", 8, _ONE, _FIXED64),
        ("attributes", 9, _MANY, _BYTES),
    ),
}
"""The name, the number, the label and the type of each field."""


def _outlines() -> dict[str, Any]:
    file = FileDescriptorProto(name="outline.proto", package="outline", syntax="proto3")
    for outline, fields in _OUTLINES.items():
        message = file.message_type.add(name=outline)
        for name, number, label, kind in fields:
            message.field.add(name=name, number=number, label=label, type=kind)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClassesForFiles([file.name], pool)


_CLASSES = _outlines()
SpanOutline: Any = _CLASSES["outline.Span"]


class Scoped(NamedTuple):
    """The encoded items of one scope."""

    resource: bytes
    scope: str
    items: Sequence[bytes]


class EncodedScope(NamedTuple):
    """One encoded scope of a message, and its resource."""

    resource: bytes
    scoped: bytes
    parts: int
    """The number of resources and scopes in the message up to this scope, at most `MAX_PARTS`."""


def encoded_scopes(body: bytes) -> Iterator[EncodedScope]:
    """Yield the encoded scopes of a message, in order.

    Raises:
        MalformedError: the body is not an OTLP message.
        TooLargeError: the message has more than `MAX_PARTS` resources and scopes, or a part above
            `MAX_PART_BYTES`.
    """
    groups = decoded(_CLASSES["outline.Envelope"], body).groups
    parts = len(groups)
    for raw in _check_number(groups, parts):
        group = decoded(_CLASSES["outline.Group"], raw)
        _fit(group.resource)
        parts += len(group.scoped)
        for each in _check_number(group.scoped, parts):
            yield EncodedScope(group.resource, each, parts)


def unfold(body: bytes) -> Iterator[Scoped]:
    """Yield the scopes of a message, in order.

    Raises:
        MalformedError: the body is not an OTLP message.
        TooLargeError: the message has more than `MAX_PARTS` resources, scopes and items, or a part
            above `MAX_PART_BYTES`.
    """
    all_items = 0
    for resource, raw, parts in encoded_scopes(body):
        scoped = decoded(_CLASSES["outline.Scoped"], raw)
        _fit(scoped.scope)
        all_items += len(scoped.items)
        items = _check_number(scoped.items, parts + all_items)
        for item in items:
            _fit(item)
        scope = decoded(InstrumentationScope, scoped.scope).name
        yield Scoped(resource, scope, items)


def decoded(kind: Any, body: bytes) -> Any:
    """Decode a message of this class, or raise MalformedError."""
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise MalformedError("the body is not an OTLP message in protobuf") from error


def not_too_many(items: int) -> None:
    """Check the number of items in a message, or raise TooLargeError."""
    if items > MAX_PARTS:
        raise TooLargeError(f"more than {MAX_PARTS} items in a message; send smaller batches")


def few_enough(attributes: Sequence[Any]) -> Sequence[Any]:
    """Return the attributes of one item. Raise TooLargeError if there are too many."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise TooLargeError(
            f"an item with {len(attributes)} attributes exceeds the limit of {MAX_ATTRIBUTES}"
        )
    return attributes


def _check_number(parts: Sequence[bytes], of_all: int) -> Sequence[bytes]:
    not_too_many(of_all)
    return parts


def _fit(part: bytes) -> None:
    if len(part) > MAX_PART_BYTES:
        raise TooLargeError(
            f"an item of {len(part)} bytes exceeds the limit of {MAX_PART_BYTES} bytes"
        )
