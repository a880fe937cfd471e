"""Find the positions of the numbers of data points in an encoded scope. Pure. The numbers are
timestamps and values of eight bytes.

Source: opentelemetry-proto metrics/v1/metrics.proto; protobuf "Encoding".
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_METRICS: Final = 2
_GAUGE, _SUM = 5, 7
_OTHER_DATA: Final = frozenset({9, 10, 11})
"""Field numbers of histograms, exponential histograms and summaries."""
_DATA_POINTS: Final = 1
_START, _TIME, _DOUBLE, _INTEGER = 2, 3, 4, 6
_LONGEST_VARINT: Final = 10


class _Part(NamedTuple):
    """A field of an encoded message: its number, its wire type, and the range of its content."""

    number: int
    wire_type: int
    begin: int
    end: int


class PointNumbers(NamedTuple):
    """The position of each number of a data point. It is None for an absent number."""

    start: int | None
    time: int | None
    value: int | None
    is_double: bool


class IrregularError(Exception):
    """The bytes are not metrics, or a point contains a number twice."""


def numbers_in(scoped: bytes) -> list[PointNumbers]:
    """The positions of all points' numbers, in the order of the points.

    Raises:
        IrregularError: the bytes are malformed, a metric is neither a gauge nor a sum, or a point
            contains a number twice.
    """
    found: list[PointNumbers] = []
    for part in _parts(scoped, 0, len(scoped)):
        if part.number == _METRICS:
            found += _metric(scoped, part)
    return found


def _metric(data: bytes, metric: _Part) -> Iterator[PointNumbers]:
    shapes = 0
    for part in _nested(data, metric):
        if part.number in _OTHER_DATA:
            raise IrregularError
        if part.number in (_GAUGE, _SUM):
            shapes += 1
            for point in _nested(data, part):
                if point.number == _DATA_POINTS:
                    yield _point(data, point)
    if shapes > 1:
        raise IrregularError


def _point(data: bytes, point: _Part) -> PointNumbers:
    at: dict[int, int] = {}
    for part in _nested(data, point):
        if part.number in (_START, _TIME, _DOUBLE, _INTEGER):
            if part.wire_type != _FIXED64 or part.number in at:
                raise IrregularError
            at[part.number] = part.begin
    if _DOUBLE in at and _INTEGER in at:
        raise IrregularError
    value = at.get(_DOUBLE, at.get(_INTEGER))
    return PointNumbers(at.get(_START), at.get(_TIME), value, _DOUBLE in at)


def _nested(data: bytes, part: _Part) -> Iterator[_Part]:
    if part.wire_type != _LENGTH:
        raise IrregularError
    return _parts(data, part.begin, part.end)


def _parts(data: bytes, at: int, end: int) -> Iterator[_Part]:
    while at < end:
        tag, at = _varint(data, at, end)
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, until = _varint(data, at, end)
        elif wire_type == _FIXED64:
            until = at + 8
        elif wire_type == _FIXED32:
            until = at + 4
        elif wire_type == _LENGTH:
            length, at = _varint(data, at, end)
            until = at + length
        else:  # a deprecated wire type
            raise IrregularError
        if until > end:
            raise IrregularError
        yield _Part(tag >> 3, wire_type, at, until)
        at = until


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for place in range(min(_LONGEST_VARINT, end - at)):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise IrregularError
