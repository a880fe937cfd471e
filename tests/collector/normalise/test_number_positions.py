import struct

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint, ScopeMetrics
from tailspan_vllm import names

from collector.normalise.number_positions import IrregularError, PointNumbers, numbers_in
from collector.normalise.otlp_envelope import encoded_scopes
from tests.collector.normalise.metric_messages import engine_message, gpu_message


def _scoped(body: bytes) -> bytes:
    [(_, scoped, _)] = encoded_scopes(body)
    return scoped


def _points(scoped: bytes) -> list[NumberDataPoint]:
    return [
        point
        for metric in ScopeMetrics.FromString(scoped).metrics
        for point in (
            metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
        )
    ]


@pytest.mark.parametrize("body", [engine_message(engines=2), gpu_message()])
def test_each_number_is_where_it_is_found(body: bytes) -> None:
    """If a number is overwritten at its position, protobuf decodes the new number."""
    scoped = bytearray(_scoped(body))
    found = numbers_in(bytes(scoped))
    before = _points(bytes(scoped))
    assert len(found) == len(before)
    for count, (at, point) in enumerate(zip(found, before, strict=True)):
        assert at.time is not None
        assert at.value is not None
        assert (at.start is not None) == bool(point.start_time_unix_nano)
        assert at.is_double == (point.WhichOneof("value") == "as_double")
        struct.pack_into("<Q", scoped, at.time, 10_000 + count)
        struct.pack_into("<d" if at.is_double else "<q", scoped, at.value, count)
        if at.start is not None:
            struct.pack_into("<Q", scoped, at.start, 20_000 + count)
    for count, (at, point) in enumerate(zip(found, _points(bytes(scoped)), strict=True)):
        assert point.time_unix_nano == 10_000 + count
        assert (point.as_double if at.is_double else point.as_int) == count
        assert at.start is None or point.start_time_unix_nano == 20_000 + count


def test_a_point_without_numbers_has_none() -> None:
    scoped = ScopeMetrics(metrics=[Metric(name=names.WAITING)])
    scoped.metrics[0].gauge.data_points.add()
    assert numbers_in(scoped.SerializeToString()) == [PointNumbers(None, None, None, False)]


def _histogram() -> bytes:
    scoped = ScopeMetrics(metrics=[Metric(name=names.WAITING)])
    scoped.metrics[0].histogram.data_points.add(count=1)
    return scoped.SerializeToString()


def _in_a_gauge(*points: bytes) -> bytes:
    content = b"".join(b"\x0a" + bytes([len(point)]) + point for point in points)
    gauge = b"\x2a" + bytes([len(content)]) + content
    return b"\x12" + bytes([len(gauge)]) + gauge


_TIME = b"\x19" + bytes(8)


@pytest.mark.parametrize(
    "scoped",
    [
        pytest.param(_histogram(), id="a histogram"),
        pytest.param(_in_a_gauge(_TIME + _TIME), id="a time twice"),
        pytest.param(_in_a_gauge(b"\x21" + bytes(8) + b"\x31" + bytes(8)), id="two values"),
        pytest.param(_in_a_gauge(b"\x18\x00"), id="a time as a varint"),
        pytest.param(_in_a_gauge(_TIME[:-1]), id="a time without its end"),
        pytest.param(b"\x12\x7f", id="a metric without its end"),
        pytest.param(b"\x12\x04\x2a\x00\x3a\x00", id="a gauge and a sum"),
        pytest.param(b"\x10\x00", id="a metric as a varint"),
        pytest.param(b"\x13\x14", id="a group"),
        pytest.param(b"\xff" * 11, id="a tag without an end"),
        pytest.param(b"\x80", id="a truncated tag"),
    ],
)
def test_irregular_bytes_are_reported(scoped: bytes) -> None:
    with pytest.raises(IrregularError):
        numbers_in(scoped)
