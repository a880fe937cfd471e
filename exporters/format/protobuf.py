"""Families of metrics in Prometheus' protobuf format, the only one that carries native histograms.

prometheus_client does not write it, and objects of a protobuf library would cost ten times what
these bytes do: a scrape is tens of thousands of messages of two numbers. Each is a prefix that is
kept from scrape to scrape, and the numbers. Field numbers are those of `MetricFamily`.

Source: prometheus/client_model, io/prometheus/client/metrics.proto.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from exporters.format.histogram_cells import SCHEMA, Cells, IntArray
from exporters.format.label_cache import Kept, Labels

BoolArray = NDArray[np.bool_]

COUNTER, GAUGE, HISTOGRAM = 0, 1, 4
_VALUE_FIELDS: Final = {COUNTER: b"\x1a\x09\x09", GAUGE: b"\x12\x09\x09"}
"""Of a metric, the message that holds its value, and of that the value."""
_value: Final = Struct("<3sd").pack
_double: Final = Struct("<d").pack
_bound: Final = Struct("<cd").pack
GAP: Final = 5
"""So many empty buckets are told as such, in a byte each; of more, the next span begins, which
takes six."""


def varint(number: int) -> bytes:
    """A whole number of at least 0, seven bits a byte, the lowest first."""
    return _SMALL[number] if number < len(_SMALL) else _written(number)


def varints(numbers: list[int]) -> list[bytes]:
    """Each of them."""
    if max(numbers, default=0) < len(_SMALL):
        return [*map(_SMALL.__getitem__, numbers)]
    return [*map(varint, numbers)]


def _written(number: int) -> bytes:
    told = bytearray()
    while number >= 0x80:
        told.append(number & 0x7F | 0x80)
        number >>= 7
    told.append(number)
    return bytes(told)


_SMALL: Final = tuple(map(_written, range(0x2000)))


def _sized(field: bytes, body: bytes) -> bytes:
    """A field that is a message or a text."""
    return field + varint(len(body)) + body


def family(name: str, help_: str, kind: int, metrics: Iterable[bytes]) -> bytes:
    """All that is told under one name, with its length before it."""
    head = _sized(b"\x0a", name.encode()) + _sized(b"\x12", help_.encode()) + b"\x18" + varint(kind)
    body = b"".join((head, *metrics))
    return varint(len(body)) + body


def scalars(kind: int, names: Labels, values: Mapping[Labels, float]) -> Iterator[bytes]:
    """A metric for each labelled value."""
    field, begins = _VALUE_FIELDS[kind], _scalars(names)
    for labels, value in values.items():
        yield begins[labels] + _value(field, value)


@lru_cache(maxsize=64)
def _scalars(names: Labels) -> Kept[bytes]:
    """Metrics of one value, up to that value, which takes eleven bytes."""

    def make(labels: Labels) -> bytes:
        pairs = label_pairs(names, labels)
        return b"\x22" + varint(len(pairs) + 11) + pairs

    return Kept(make)


def label_pairs(names: Labels, values: Labels) -> bytes:
    """The labels of a metric; an empty one is none."""
    return b"".join(
        _sized(b"\x0a", _sized(b"\x0a", name.encode()) + _sized(b"\x12", value.encode()))
        for name, value in sorted(zip(names, values, strict=True))
        if value
    )


def histogram(labels: bytes, *parts: bytes) -> bytes:
    """A metric that is a histogram, of what its fields are."""
    return _sized(b"\x22", labels + _sized(b"\x3a", b"".join(parts)))


def total(count: int, sum_s: float) -> bytes:
    """How many there were, and their sum."""
    return b"\x08" + varint(count) + b"\x11" + _double(sum_s)


def classic(
    bounds: Sequence[bytes], cumulative: list[int], exemplars: Iterable[tuple[int, bytes]]
) -> bytes:
    """The buckets of a classic histogram.

    Args:
        bounds: of each bucket, as `upper_bound` has it.
        cumulative: what each holds, with all below it.
        exemplars: of some buckets, by their place, as `exemplar` has it.
    """
    numbers = varints(cumulative)
    told = [
        _BUCKETS[len(number)] + number + bound
        for number, bound in zip(numbers, bounds, strict=True)
    ]
    for place, more in exemplars:
        told[place] = _sized(b"\x1a", b"\x08" + numbers[place] + bounds[place] + more)
    return b"".join(told)


_BUCKETS: Final = tuple(b"\x1a" + bytes((size + 10,)) + b"\x08" for size in range(11))
"""What stands before a bucket's count, by how many bytes that is."""


def upper_bound(bound_s: float) -> bytes:
    """Of a classic bucket."""
    return _bound(b"\x11", bound_s)


def exemplar(trace_id: str, value_s: float, at_unix_s: float) -> bytes:
    """A request that stands for its bucket; Prometheus takes it for the native histogram, too."""
    told, at = trace_id.encode(), timestamp(at_unix_s)
    label = _trace_label(len(told)) + told
    return _sized(b"\x1a", label + _exemplar(b"\x11", value_s, b"\x1a", len(at)) + at)


_exemplar: Final = Struct("<cdcB").pack


@lru_cache(maxsize=8)
def _trace_label(size: int) -> bytes:
    """A label of that name, up to its value, which takes so many bytes."""
    name = b"\x0a\x08trace_id\x12" + varint(size)
    return b"\x0a" + varint(len(name) + size) + name


def timestamp(at_unix_s: float) -> bytes:
    """An instant since 1970, to the millisecond; one before it is told as that."""
    whole, milli = divmod(max(0, round(at_unix_s * 1000)), 1000)
    return _second(whole) + _MILLIS[milli]


@lru_cache(maxsize=1 << 10)
def _second(whole: int) -> bytes:
    return b"\x08" + varint(whole)


_MILLIS: Final = tuple(b"\x10" + varint(milli * 10**6) for milli in range(1000))


def native(of: Cells, counts: IntArray, created_unix_s: float) -> list[bytes]:
    """The sparse buckets of several histograms: what follows their classic ones.

    Args:
        of: their cells.
        counts: (n, cells).
        created_unix_s: since when they have been counted.
    """
    summed = of.native(counts)
    zeros, buckets = summed[:, 0].tolist(), summed[:, 1:]
    told = _closed(buckets > 0)
    # Each bucket is told as its difference to the one before, a histogram's first as it is.
    owners, _ = np.nonzero(told)
    heights = buckets[told]
    steps = np.diff(heights, prepend=0)
    limits = np.searchsorted(owners, np.arange(len(counts) + 1))
    firsts = limits[:-1][limits[:-1] < limits[1:]]
    steps[firsts] = heights[firsts]
    deltas = varints(((steps << 1) ^ (steps >> 63)).tolist())
    spans: list[list[bytes]] = [[] for _ in zeros]
    past = 0
    for row, begin, end in _stretches(told):
        # The first begins at its bucket, the others so far after the one before.
        gap = begin - past if spans[row] else begin + of.first
        past = end
        offset = b"\x08" + varint(gap << 1 if gap >= 0 else -gap * 2 - 1)
        spans[row].append(_sized(b"\x62", offset + b"\x10" + varint(end - begin)))
    head = b"\x28" + varint(SCHEMA << 1) + b"\x31" + _double(of.zero_threshold_s) + b"\x38"
    created = _sized(b"\x7a", timestamp(created_unix_s))
    return [
        b"".join(
            (
                head,
                varint(zero),
                *spans[row],
                _sized(b"\x6a", b"".join(deltas[limits[row] : limits[row + 1]])),
                created,
            )
        )
        for row, zero in enumerate(zeros)
    ]


def _closed(filled: BoolArray) -> BoolArray:
    """Those that are filled, and short gaps between them: (n, buckets)."""
    filled = np.pad(filled, ((0, 0), (GAP, GAP)))
    near = filled.copy()
    for by in range(1, GAP + 1):
        near[:, by:] |= filled[:, :-by]
    closed = near.copy()
    for by in range(1, GAP + 1):
        closed[:, :-by] &= near[:, by:]
    return closed[:, GAP:-GAP]


def _stretches(told: BoolArray) -> Iterator[tuple[int, int, int]]:
    """Row, first and past of each stretch of neighbours."""
    edges = np.diff(np.pad(told, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, begins = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)
    return zip(rows.tolist(), begins.tolist(), ends.tolist(), strict=True)
