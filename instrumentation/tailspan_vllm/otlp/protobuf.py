"""OTLP's common pieces as bytes: what protobuf would make of them, at a fraction of the cost.

The SDK builds a Python object for every attribute; a span of ours has forty. Most of their
bytes are the same from one span to the next: of a number only its eight bytes are new, so the
numbers of a span are written in one go, by a form that is kept for each set of names.

Source: opentelemetry-proto common/v1/common.proto; protobuf "Encoding".
"""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from struct import Struct
from typing import Any

_DOUBLE = Struct("<d").pack

SHORT = tuple(bytes((value,)) for value in range(0x80))
"""The varints of one byte."""

_names: dict[str, bytes] = {}
_repeated: dict[bytes, dict[tuple[str, str | int], bytes]] = {}
"""Whole attributes by tag, then key and value; emptied when full: some values come but once."""


def varint(value: int) -> bytes:
    """A non-negative integer, seven bits a byte."""
    if value < 0x80:
        return SHORT[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(tag: bytes, content: bytes) -> bytes:
    """A field of a length of its own: a text, or a message."""
    return tag + varint(len(content)) + content


def text(value: str) -> bytes:
    """UTF-8; half a character becomes a question mark."""
    return value.encode("utf-8", "replace")


def any_value(value: Any) -> bytes:
    """An `AnyValue`; what is no value of OTLP's is told as text."""
    kind = type(value)
    if kind is float:
        return b"\x21" + _DOUBLE(value)
    if kind is int:
        return b"\x18" + varint(value & 0xFFFFFFFFFFFFFFFF)
    if kind is str:
        return field(b"\x0a", text(value))
    if kind is bool:
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, str):
        return field(b"\x0a", text(str(value)))
    if isinstance(value, Sequence):
        return field(b"\x2a", b"".join(field(b"\x0a", any_value(each)) for each in value))
    # A number of numpy's, say: one strange value must not keep back the batch it stands in.
    if isinstance(value, Integral):
        return any_value(int(value))
    if isinstance(value, Real):
        return any_value(float(value))
    return any_value(str(value)[:256])


def _name(key: str) -> bytes:
    name = _names.get(key)
    if name is None:
        name = field(b"\x0a", text(key))
        if len(_names) < 1024:
            _names[key] = name
    return name


class Form:
    """Fields that differ from one span to the next in eight bytes each.

    Args:
        befores: what stands before each of the eight bytes.
        kind: what they are to `struct`: `d`, a double, or `Q`, a time.
    """

    __slots__ = ("_blank", "_pack")

    def __init__(self, befores: Sequence[bytes], kind: str) -> None:
        self._pack = Struct("<" + "".join(f"{len(before)}s{kind}" for before in befores)).pack
        self._blank: list[bytes | float] = [part for before in befores for part in (before, 0)]

    def filled(self, values: Sequence[float]) -> bytes:
        """The fields' bytes, with these values."""
        parts = self._blank.copy()
        parts[1::2] = values
        return self._pack(*parts)


_number_forms: dict[tuple[bytes, tuple[str, ...]], Form] = {}


def _numbers(tag: bytes, keys: Sequence[str], values: Sequence[float]) -> bytes:
    """Attributes whose values are doubles."""
    kept = (tag, tuple(keys))
    form = _number_forms.get(kept)
    if form is None:
        befores = []
        for key in keys:
            name = _name(key)
            befores.append(tag + varint(len(name) + 11) + name + b"\x12\x09\x21")
        form = Form(befores, "d")
        if len(_number_forms) < 256:
            _number_forms[kept] = form
    return form.filled(values)


def attributes(tag: bytes, given: Mapping[str, Any]) -> bytes:
    """Each attribute as a field of this tag; those that are doubles last."""
    keys: list[str] = []
    numbers: list[float] = []
    told: list[bytes] = []
    repeated = _repeated.setdefault(tag, {})
    for key, value in given.items():
        kind = type(value)
        if kind is float:
            keys.append(key)
            numbers.append(value)
        elif kind is str or kind is int:
            # Most labels and small counts have been told before.
            pair = repeated.get((key, value))
            if pair is None:
                pair = _pair(tag, key, value)
                if len(repeated) >= 4096:
                    repeated.clear()
                repeated[key, value] = pair
            told.append(pair)
        else:
            told.append(_pair(tag, key, value))
    if keys:
        told.append(_numbers(tag, keys, numbers))
    return b"".join(told)


def _pair(tag: bytes, key: str, value: Any) -> bytes:
    told = any_value(value)
    pair = _name(key) + b"\x12" + varint(len(told)) + told
    return tag + varint(len(pair)) + pair
