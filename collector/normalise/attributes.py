"""Read encoded attributes into the fields of a row, with a cache of decoded values.

Many spans have the same labels and small counts, so the cache maps the bytes of an attribute to its
value. Doubles are not cached. For an attribute with a double, the cache's key is the bytes before
the double.
"""

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from collector.drop_reasons import Refusal
from collector.normalise.otlp_envelope import decoded
from collector.normalise.values import MAX_DURATION_S, AttributeReader, RefusalError, ratio, seconds

_MAX_CACHED: Final = 16_384
_MAX_CACHED_BYTES: Final = 384
"""Maximum length in bytes of a cached attribute. It limits the cache to a few MB."""

_DOUBLE = Struct("<d").unpack_from
_DOUBLE_BYTES: Final = 8

Read = Callable[[AttributeReader, str], Any]
"""A function that reads an attribute, or raises RefusalError. It is usually a method of
`AttributeReader`."""


REFUSED: Final = object()
"""Stored in place of an attribute's value if the value is invalid."""


class _Cached(NamedTuple):
    """The value of an attribute, and its field's position in the row. An invalid attribute has the
    value `REFUSED` and a reason."""

    place: int
    value: Any
    refusal: Refusal | None
    truncated_texts: int


class _Number(NamedTuple):
    place: int
    most: float
    check: Callable[[float], float]


_NUMBERS: Final[Mapping[Read, tuple[float, Callable[[float], float]]]] = {
    AttributeReader.seconds: (MAX_DURATION_S, seconds),
    AttributeReader.ratio: (1.0, ratio),
}


class AttributeTable:
    """Reads the attributes of an item into the fields of a row.

    Args:
        table: maps each attribute to its field and the function that reads it.
        unique: attributes that are not cached, because their values rarely repeat.
        unstored: attributes with a double that is checked but not stored.
    """

    def __init__(
        self,
        fields: tuple[str, ...],
        table: Mapping[str, tuple[str, Read]],
        unique: Iterable[str] = (),
        unstored: Mapping[str, Read] | None = None,
    ) -> None:
        self._table = {name: (fields.index(field), read) for name, (field, read) in table.items()}
        self._table |= {name: (-1, read) for name, read in (unstored or {}).items()}
        self._unique = frozenset(unique)
        self._cached: dict[bytes, _Cached] = {}
        self._numbers: dict[bytes, _Number] = {}
        # The last element of the row receives the values of attributes that belong to no field.
        self._blank: list[Any] = [None] * (len(fields) + 1)

    def read(self, attributes: Iterable[bytes]) -> tuple[list[Any], Refusal | None, int]:
        """Read the attributes of one item. The last value of a repeated key is used.

        Returns:
            Three results. First, the values in the order of the fields, followed by one element to
            ignore. The value of an absent attribute is None. Second, the first reason to refuse the
            item, or None. Third, the number of truncated texts.

        Raises:
            MalformedError: the bytes are not an attribute.
        """
        values = self._blank.copy()
        cached, numbers = self._cached, self._numbers
        refusal: Refusal | None = None
        truncated_texts = 0
        for raw in attributes:
            number = numbers.get(raw[:-_DOUBLE_BYTES])
            if number is not None:
                place, most, check = number
                value: float = _DOUBLE(raw, len(raw) - _DOUBLE_BYTES)[0]
                if 0.0 <= value <= most:
                    values[place] = value
                else:
                    values[place] = REFUSED
                    refusal = refusal or _reason(check, value)
                continue
            each = cached.get(raw) or self._decode(raw)
            values[each[0]] = each[1]
            if each[2] is not None or each[3]:
                refusal = refusal or each[2]
                truncated_texts += each[3]
        return values, refusal, truncated_texts

    def _decode(self, raw: bytes) -> _Cached:
        pair = decoded(KeyValue, raw)
        place, read = self._table.get(pair.key, (-1, None))
        entry = _Cached(place, None, None, 0) if read is None else _read(place, read, pair)
        if len(raw) > _MAX_CACHED_BYTES or pair.key in self._unique:
            return entry
        if (
            read is not None
            and read in _NUMBERS
            and raw[:-_DOUBLE_BYTES] == _before_a_double(pair.key)
        ):
            self._numbers[raw[:-_DOUBLE_BYTES]] = _Number(place, *_NUMBERS[read])
            return entry
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[raw] = entry
        return entry


def _read(place: int, read: Read, pair: KeyValue) -> _Cached:
    reader = AttributeReader({pair.key: pair.value})
    try:
        value = read(reader, pair.key)
    except RefusalError as refusal:
        return _Cached(place, REFUSED, refusal.reason, 0)
    return _Cached(place, value, None, reader.truncated_texts)


def _before_a_double(key: str) -> bytes:
    """The bytes before the double in an encoded `KeyValue`. The key must be shorter than 128
    bytes."""
    name = key.encode()
    return b"\x0a" + bytes([len(name) & 0x7F]) + name + b"\x12\x09\x21"


def _reason(check: Callable[[float], float], value: float) -> Refusal | None:
    try:
        check(value)
    except RefusalError as refusal:
        return refusal.reason
    return None
