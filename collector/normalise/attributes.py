"""Attributes straight from bytes to a row's fields, each distinct one understood only once.

Most attributes of a span are, byte for byte, those of the span before: labels, small counts.
What the bytes mean depends on the bytes alone, so it is remembered. Of a double only the last
eight bytes are new, so what stands before them is remembered. All that is not known yet goes
through protobuf and `values.Reader`, which are the only ones to decide.
"""

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from collector.drop_reasons import Refusal
from collector.normalise.otlp_envelope import decoded
from collector.normalise.values import MAX_DURATION_S, Reader, RefusalError, ratio, seconds

_MOST_KNOWN: Final = 16_384
_LONGEST_KNOWN: Final = 384
"""What is remembered stays within a few MB whatever is sent."""

_DOUBLE = Struct("<d").unpack_from
_DOUBLE_BYTES: Final = 8

Read = Callable[[Reader, str], Any]
"""How an attribute is read: one of `Reader`'s methods, or what raises RefusalError as they do."""


REFUSED: Final = object()
"""In place of a value: something was said of this field, and it was wrong."""


class _Known(NamedTuple):
    """What an attribute's bytes say: a value for a field, or `REFUSED` and why."""

    place: int
    value: Any
    refusal: Refusal | None
    truncated_texts: int


class _Number(NamedTuple):
    """What the bytes before a double say: whose value it is, and what it may be."""

    place: int
    most: float
    check: Callable[[float], float]


_NUMBERS: Final[Mapping[Read, tuple[float, Callable[[float], float]]]] = {
    Reader.seconds: (MAX_DURATION_S, seconds),
    Reader.ratio: (1.0, ratio),
}


class AttributeTable:
    """Which attribute fills which field of a row.

    Args:
        fields: the row's fields, in order.
        table: by the attribute's name, its field and how it is read.
        unique: attributes whose values hardly ever come twice.
    """

    def __init__(
        self,
        fields: tuple[str, ...],
        table: Mapping[str, tuple[str, Read]],
        unique: Iterable[str] = (),
    ) -> None:
        self._table = {name: (fields.index(field), read) for name, (field, read) in table.items()}
        self._unique = frozenset(unique)
        self._known: dict[bytes, _Known] = {}
        self._numbers: dict[bytes, _Number] = {}
        # One place more than there are fields, for what is of no interest.
        self._blank: list[Any] = [None] * (len(fields) + 1)

    def read(self, attributes: Iterable[bytes]) -> tuple[list[Any], Refusal | None, int]:
        """Read the attributes of one item; of a repeated key the last counts.

        Returns:
            The values by field, None where nothing was said, with one place more at the end;
            the first reason to refuse the item; how many texts were cut.

        Raises:
            MalformedError: bytes that are no attribute.
        """
        values = self._blank.copy()
        known, numbers = self._known, self._numbers
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
            told = known.get(raw) or self._learn(raw)
            values[told[0]] = told[1]
            if told[2] is not None or told[3]:
                refusal = refusal or told[2]
                truncated_texts += told[3]
        return values, refusal, truncated_texts

    def _learn(self, raw: bytes) -> _Known:
        pair = decoded(KeyValue, raw)
        place, read = self._table.get(pair.key, (-1, None))
        told = _Known(place, None, None, 0) if read is None else _told(place, read, pair)
        if len(raw) > _LONGEST_KNOWN or pair.key in self._unique:
            return told
        if (
            read is not None
            and read in _NUMBERS
            and raw[:-_DOUBLE_BYTES] == _before_a_double(pair.key)
        ):
            self._numbers[raw[:-_DOUBLE_BYTES]] = _Number(place, *_NUMBERS[read])
            return told
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[raw] = told
        return told


def _told(place: int, read: Read, pair: KeyValue) -> _Known:
    reader = Reader({pair.key: pair.value})
    try:
        value = read(reader, pair.key)
    except RefusalError as refusal:
        return _Known(place, REFUSED, refusal.reason, 0)
    return _Known(place, value, None, reader.truncated_texts)


def _before_a_double(key: str) -> bytes:
    """A `KeyValue`'s bytes up to the eight of its double; of a short key, as all of ours are."""
    name = key.encode()
    return b"\x0a" + bytes([len(name) & 0x7F]) + name + b"\x12\x09\x21"


def _reason(check: Callable[[float], float], value: float) -> Refusal | None:
    try:
        check(value)
    except RefusalError as refusal:
        return refusal.reason
    return None
