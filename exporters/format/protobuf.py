"""Metric families in Prometheus' protobuf format.

This is the only format with native histograms. prometheus_client cannot write it, and a protobuf
library takes ten times as long for tens of thousands of small messages. Therefore, this module
caches the constant beginning of each message, and appends the numbers.

Source: prometheus/client_model, io/prometheus/client/metrics.proto.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from exporters.format.histogram_cells import SCHEMA, HistogramCells, IntArray
from exporters.format.label_cache import LabelCache, Labels

BoolArray = NDArray[np.bool_]

COUNTER, GAUGE, HISTOGRAM = 0, 1, 4
_VALUE_FIELDS: Final = {COUNTER: b"\x1a\x09\x09", GAUGE: b"\x12\x09\x09"}
"""The bytes before a value. These bytes are the tag and the length of `Counter` or `Gauge`, and the
tag of its `value`."""
_value: Final = Struct("<3sd").pack
_double: Final = Struct("<d").pack
_bound: Final = Struct("<cd").pack
GAP: Final = 5
"""Maximum number of consecutive empty buckets that are written as zeros. A zero takes one byte, but
a `BucketSpan` takes six."""


def varint(number: int) -> bytes:
    """Encode a non-negative integer as a varint."""
    return _SMALL[number] if number < len(_SMALL) else _written(number)


def varints(numbers: list[int]) -> list[bytes]:
    """Encode each number as a varint."""
    if max(numbers, default=0) < len(_SMALL):
        return [*map(_SMALL.__getitem__, numbers)]
    return [*map(varint, numbers)]


def _written(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_SMALL: Final = tuple(map(_written, range(0x2000)))


def _sized(field: bytes, body: bytes) -> bytes:
    return field + varint(len(body)) + body


def family(name: str, help_: str, kind: int, metrics: Iterable[bytes]) -> bytes:
    """Encode a family, preceded by its length."""
    head = _sized(b"\x0a", name.encode()) + _sized(b"\x12", help_.encode()) + b"\x18" + varint(kind)
    body = b"".join((head, *metrics))
    return varint(len(body)) + body


def scalars(kind: int, names: Labels, values: Mapping[Labels, float]) -> Iterator[bytes]:
    """Encode one metric for each value, with its labels."""
    field, begins = _VALUE_FIELDS[kind], _scalars(names)
    for labels, value in values.items():
        yield begins[labels] + _value(field, value)


@lru_cache(maxsize=64)
def _scalars(names: Labels) -> LabelCache[bytes]:
    """The encoded metric of each set of label values, without the eleven bytes of its value."""

    def make(labels: Labels) -> bytes:
        pairs = label_pairs(names, labels)
        return b"\x22" + varint(len(pairs) + 11) + pairs

    return LabelCache(make)


def label_pairs(names: Labels, values: Labels) -> bytes:
    """Encode the labels of a metric. Labels with an empty value are omitted."""
    return b"".join(
        _sized(b"\x0a", _sized(b"\x0a", name.encode()) + _sized(b"\x12", value.encode()))
        for name, value in sorted(zip(names, values, strict=True))
        if value
    )


def histogram(labels: bytes, *parts: bytes) -> bytes:
    """Encode a histogram metric from its encoded fields."""
    return _sized(b"\x22", labels + _sized(b"\x3a", b"".join(parts)))


def total(count: int, sum_s: float) -> bytes:
    """Encode the count and the sum of a histogram."""
    return b"\x08" + varint(count) + b"\x11" + _double(sum_s)


def classic(
    bounds: Sequence[bytes], cumulative: list[int], exemplars: Iterable[tuple[int, bytes]]
) -> bytes:
    """Encode the buckets of a classic histogram.

    Args:
        bounds: encoded by `upper_bound`.
        cumulative: the count of each bucket, including all lower buckets.
        exemplars: maps the index of a bucket to its exemplar, encoded by `exemplar`.
    """
    numbers = varints(cumulative)
    buckets = [
        _BUCKETS[len(number)] + number + bound
        for number, bound in zip(numbers, bounds, strict=True)
    ]
    for place, more in exemplars:
        buckets[place] = _sized(b"\x1a", b"\x08" + numbers[place] + bounds[place] + more)
    return b"".join(buckets)


_BUCKETS: Final = tuple(b"\x1a" + bytes((size + 10,)) + b"\x08" for size in range(11))


def upper_bound(bound_s: float) -> bytes:
    """Encode the bound of a classic bucket."""
    return _bound(b"\x11", bound_s)


def exemplar(trace_id: str, value_s: float, at_unix_s: float) -> bytes:
    """Encode an exemplar of a classic bucket. Prometheus also uses it for the native histogram."""
    encoded_id, at = trace_id.encode(), timestamp(at_unix_s)
    label = _trace_label(len(encoded_id)) + encoded_id
    return _sized(b"\x1a", label + _exemplar(b"\x11", value_s, b"\x1a", len(at)) + at)


_exemplar: Final = Struct("<cdcB").pack


@lru_cache(maxsize=8)
def _trace_label(size: int) -> bytes:
    """The encoded label `trace_id` before its value of length `size`."""
    name = b"\x0a\x08trace_id\x12" + varint(size)
    return b"\x0a" + varint(len(name) + size) + name


def timestamp(at_unix_s: float) -> bytes:
    """Encode a timestamp with a precision of 1 ms. Timestamps before 1970 become 1970."""
    whole, milli = divmod(max(0, round(at_unix_s * 1000)), 1000)
    return _second(whole) + _MILLIS[milli]


@lru_cache(maxsize=1 << 10)
def _second(whole: int) -> bytes:
    return b"\x08" + varint(whole)


_MILLIS: Final = tuple(b"\x10" + varint(milli * 10**6) for milli in range(1000))


def native(of: HistogramCells, counts: IntArray, created_unix_s: float) -> list[bytes]:
    """Encode the native buckets of several histograms.

    Args:
        of: the cells of the histograms.
        counts: (n, cells).
        created_unix_s: the time when the counts started.
    """
    summed = of.native(counts)
    zeros, buckets = summed[:, 0].tolist(), summed[:, 1:]
    written = _buckets_to_write(buckets > 0)
    # The first bucket is written as its count. Each later bucket is written as the difference from
    # the previous bucket.
    owners, _ = np.nonzero(written)
    heights = buckets[written]
    steps = np.diff(heights, prepend=0)
    limits = np.searchsorted(owners, np.arange(len(counts) + 1))
    firsts = limits[:-1][limits[:-1] < limits[1:]]
    steps[firsts] = heights[firsts]
    deltas = varints(((steps << 1) ^ (steps >> 63)).tolist())
    spans: list[list[bytes]] = [[] for _ in zeros]
    past = 0
    for row, begin, end in _runs(written):
        # The first `BucketSpan` contains the index of its first bucket. Each later `BucketSpan`
        # contains the gap before it.
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


def _buckets_to_write(filled: BoolArray) -> BoolArray:
    """The non-empty buckets and short gaps between them: (n, buckets)."""
    filled = np.pad(filled, ((0, 0), (GAP, GAP)))
    near = filled.copy()
    for by in range(1, GAP + 1):
        near[:, by:] |= filled[:, :-by]
    closed = near.copy()
    for by in range(1, GAP + 1):
        closed[:, :-by] &= near[:, by:]
    return closed[:, GAP:-GAP]


def _runs(written: BoolArray) -> Iterator[tuple[int, int, int]]:
    """Each run of buckets to write: the histogram's index, the first bucket, and the bucket after
    the last."""
    edges = np.diff(np.pad(written, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, begins = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)
    return zip(rows.tolist(), begins.tolist(), ends.tolist(), strict=True)
