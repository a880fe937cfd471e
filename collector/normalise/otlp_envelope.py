"""OTLP messages unfolded level by level, so that no more than one item is spread out at a time.

An empty span is two bytes on the wire and a hundred and fifty once parsed: a message within
the limit of size could fill the memory. All signals nest alike (resources, scopes, items), so
one outline, in which what is nested stays bytes, serves them all.

Source: opentelemetry-proto, collector/*/v1/*_service.proto; protobuf "Encoding": a field of
bytes reads what a field of a message has written.
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
"""Resources, scopes and items of one message together, and its data points. Exporters send 512,
an OpenTelemetry Collector 8,192 (the default `send_batch_size`)."""
MAX_PART_BYTES: Final = 2**20
"""Of one resource, scope or item; ours take two thousand bytes."""
MAX_ATTRIBUTES: Final = 1024
"""Of one resource, item or data point. OpenTelemetry's SDKs keep 128 by default; an empty one is
two bytes, so that a MiB could hold half a million."""

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
"""Fields as the protocol numbers them: name, number, how many, type."""


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
"""A span of which only the ids, the times and the attributes' bytes are read."""


class Scoped(NamedTuple):
    """The items of one scope of one resource: bytes, under the scope's name."""

    resource: bytes
    scope: str
    items: Sequence[bytes]


def unfold(body: bytes) -> Iterator[Scoped]:
    """The scopes of a message, in its order.

    Raises:
        MalformedError: not an OTLP message.
        TooLargeError: more than `MAX_PARTS` parts, or one above `MAX_PART_BYTES`.
    """
    groups = decoded(_CLASSES["outline.Envelope"], body).groups
    parts = len(groups)
    for raw in _counted(groups, parts):
        group = decoded(_CLASSES["outline.Group"], raw)
        _fit(group.resource)
        parts += len(group.scoped)
        for each in _counted(group.scoped, parts):
            scoped = decoded(_CLASSES["outline.Scoped"], each)
            _fit(scoped.scope)
            parts += len(scoped.items)
            items = _counted(scoped.items, parts)
            for item in items:
                _fit(item)
            scope = decoded(InstrumentationScope, scoped.scope).name
            yield Scoped(group.resource, scope, items)


def decoded(kind: Any, body: bytes) -> Any:
    """A message of this kind, or a MalformedError."""
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise MalformedError("the body is not an OTLP message in protobuf") from error


def not_too_many(items: int) -> None:
    """Raise TooLargeError where a message has more than `MAX_PARTS`."""
    if items > MAX_PARTS:
        raise TooLargeError(f"more than {MAX_PARTS} items in a message; send smaller batches")


def few_enough(attributes: Sequence[Any]) -> Sequence[Any]:
    """The attributes of one item; raises TooLargeError where there are above `MAX_ATTRIBUTES`."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise TooLargeError(
            f"an item with {len(attributes)} attributes exceeds the limit of {MAX_ATTRIBUTES}"
        )
    return attributes


def _counted(parts: Sequence[bytes], of_all: int) -> Sequence[bytes]:
    not_too_many(of_all)
    return parts


def _fit(part: bytes) -> None:
    if len(part) > MAX_PART_BYTES:
        raise TooLargeError(
            f"an item of {len(part)} bytes exceeds the limit of {MAX_PART_BYTES} for one"
        )
