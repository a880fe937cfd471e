"""Reads Prometheus' protobuf messages with protobuf's own library.

Source: prometheus/client_model, io/prometheus/client/metrics.proto.
"""

from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.decoder import _DecodeVarint32  # type: ignore[attr-defined]

_PACKAGE: Final = "io.prometheus.client"
_SCALARS: Final = {"double": 1, "int64": 3, "uint64": 4, "int32": 5, "string": 9}
_SCALARS.update({"uint32": 13, "sint32": 17, "sint64": 18})
_MESSAGES: Final = {
    "LabelPair": "1 name string, 2 value string",
    "Timestamp": "1 seconds int64, 2 nanos int32",
    "Exemplar": "1 label *LabelPair, 2 value double, 3 timestamp Timestamp",
    "Gauge": "1 value double",
    "Counter": "1 value double, 2 exemplar Exemplar, 3 created_timestamp Timestamp",
    "Quantile": "1 quantile double, 2 value double",
    "Summary": "1 sample_count uint64, 2 sample_sum double, 3 quantile *Quantile",
    "Untyped": "1 value double",
    "Bucket": "1 cumulative_count uint64, 2 upper_bound double, 3 exemplar Exemplar,"
    " 4 cumulative_count_float double",
    "BucketSpan": "1 offset sint32, 2 length uint32",
    "Histogram": "1 sample_count uint64, 2 sample_sum double, 3 bucket *Bucket,"
    " 4 sample_count_float double, 5 schema sint32, 6 zero_threshold double,"
    " 7 zero_count uint64, 8 zero_count_float double, 9 negative_span *BucketSpan,"
    " 10 negative_delta *sint64, 11 negative_count *double, 12 positive_span *BucketSpan,"
    " 13 positive_delta *sint64, 14 positive_count *double, 15 created_timestamp Timestamp,"
    " 16 exemplars *Exemplar",
    "Metric": "1 label *LabelPair, 2 gauge Gauge, 3 counter Counter, 4 summary Summary,"
    " 5 untyped Untyped, 6 timestamp_ms int64, 7 histogram Histogram",
    # Prometheus defines the type as an enumeration, which has the encoding of a number.
    "MetricFamily": "1 name string, 2 help string, 3 type int32, 4 metric *Metric, 5 unit string",
}
COUNTER, GAUGE, HISTOGRAM = 0, 1, 4


@cache
def _family() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="metrics.proto", package=_PACKAGE, syntax="proto2"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for definition in fields.split(","):
            number, field, kind = definition.split()
            repeated, kind = kind.startswith("*"), kind.lstrip("*")
            added = message.field.add(name=field, number=int(number), label=3 if repeated else 1)
            if kind in _SCALARS:
                added.type = _SCALARS[kind]  # type: ignore[assignment]
            else:
                added.type, added.type_name = 11, f".{_PACKAGE}.{kind}"  # type: ignore[assignment]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.MetricFamily"))


def read(body: bytes) -> list[Any]:
    """Return the metric families of a scrape, and check that they have no unknown fields."""
    families, at = [], 0
    while at < len(body):
        size, at = _DecodeVarint32(body, at)
        family = _family().FromString(body[at : at + size])
        assert len(body) >= at + size
        known = _family().FromString(body[at : at + size])
        known.DiscardUnknownFields()
        assert known == family
        families.append(family)
        at += size
    return families


def native_counts(histogram: Any) -> dict[int, int]:
    """Return the non-empty native buckets; with schema 3, bucket i ends at 2^(i/8)."""
    counts, index, height = {}, 0, 0
    deltas = iter(histogram.positive_delta)
    for span in histogram.positive_span:
        index += span.offset
        for _ in range(span.length):
            height += next(deltas)
            if height:
                counts[index] = height
            index += 1
    assert next(deltas, None) is None
    return counts
