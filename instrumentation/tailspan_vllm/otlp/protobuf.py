"""Encodes the common elements of OTLP messages as protobuf bytes.

The SDK builds a Python object for each of a span's forty attributes. This module has a template
(`Form`) for each set of attribute names instead. A template contains all bytes except the eight
bytes of each number.

Source: opentelemetry-proto common/v1/common.proto; protobuf "Encoding".
"""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from struct import Struct
from typing import Any

_DOUBLE = Struct("<d").pack

SHORT = tuple(bytes((value,)) for value in range(0x80))
"""All varints of one byte."""

_names: dict[str, bytes] = {}
_repeated: dict[bytes, dict[tuple[str, Any, type], bytes]] = {}
"""Cache of encoded attributes: first by tag, then by name, value and type. A full cache is
cleared."""


def varint(value: int) -> bytes:
    """Encode a non-negative integer as a varint, seven bits per byte."""
    if value < 0x80:
        return SHORT[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(tag: bytes, content: bytes) -> bytes:
    """Encode a length-delimited field: a text or a message."""
    return tag + varint(len(content)) + content


def text(value: str) -> bytes:
    """Encode a text as UTF-8. A lone surrogate becomes a question mark."""
    return value.encode("utf-8", "replace")


def any_value(value: Any) -> bytes:
    """Encode an `AnyValue`. A value of an unsupported type becomes text."""
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
    # The value may be a numpy number, for example. One value must not prevent an export.
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
    """A template of fields.

    Args:
        prefixes: for each field, the bytes that precede its eight-byte value.
        kind: the `struct` format of the values.
    """

    __slots__ = ("_blank", "_pack")

    def __init__(self, prefixes: Sequence[bytes], kind: str) -> None:
        self._pack = Struct("<" + "".join(f"{len(prefix)}s{kind}" for prefix in prefixes)).pack
        self._blank: list[bytes | float] = [part for prefix in prefixes for part in (prefix, 0)]

    def filled(self, values: Sequence[float]) -> bytes:
        """The encoded fields with these values."""
        parts = self._blank.copy()
        parts[1::2] = values
        return self._pack(*parts)


_number_forms: dict[tuple[bytes, tuple[str, ...]], Form] = {}


def _numbers(tag: bytes, keys: Sequence[str], values: Sequence[float]) -> bytes:
    form_key = (tag, tuple(keys))
    form = _number_forms.get(form_key)
    if form is None:
        prefixes = []
        for key in keys:
            name = _name(key)
            prefixes.append(tag + varint(len(name) + 11) + name + b"\x12\x09\x21")
        form = Form(prefixes, "d")
        if len(_number_forms) < 256:
            _number_forms[form_key] = form
    return form.filled(values)


def attributes(tag: bytes, given: Mapping[str, Any]) -> bytes:
    """Encode each attribute as a field. Attributes with a double come last."""
    keys: list[str] = []
    numbers: list[float] = []
    encoded: list[bytes] = []
    repeated = _repeated.setdefault(tag, {})
    for key, value in given.items():
        kind = type(value)
        if kind is float:
            keys.append(key)
            numbers.append(value)
        elif kind is str or kind is int or kind is bool or _is_text(value):
            # Most labels and small counts occur again. The type is part of the key, because
            # `True == 1`.
            cached = key, value, kind
            pair = repeated.get(cached)
            if pair is None:
                pair = _pair(tag, key, value)
                if len(repeated) >= 4096:
                    repeated.clear()
                repeated[cached] = pair
            encoded.append(pair)
        else:
            encoded.append(_pair(tag, key, value))
    if keys:
        encoded.append(_numbers(tag, keys, numbers))
    return b"".join(encoded)


def _is_text(value: Any) -> bool:
    """Return whether a value is a tuple of one text, such as the finish reasons."""
    return type(value) is tuple and len(value) == 1 and type(value[0]) is str


def _pair(tag: bytes, key: str, value: Any) -> bytes:
    encoded = any_value(value)
    pair = _name(key) + b"\x12" + varint(len(encoded)) + encoded
    return tag + varint(len(pair)) + pair
