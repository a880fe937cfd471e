"""Derive the layout of a scope from a message that `normalise_points` has read. Pure. A layout is
the positions of the numbers in the scope, and the fields that they belong to."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Final, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    DataPointFlags,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from tailspan_vllm import names

from collector.normalise.batch import NormalisedBatch
from collector.normalise.data_points import SampleField
from collector.normalise.engine_points import FIELDS, normalise_points
from collector.normalise.gpu_points import FIELDS as GPU_FIELDS
from collector.normalise.number_positions import IrregularError, PointNumbers, numbers_in
from collector.normalise.otlp_envelope import decoded, encoded_scopes
from collector.normalise.resources import origin_of
from collector.normalise.sample_layouts import (
    DOUBLE,
    INTEGER,
    TIMESTAMP,
    LayoutDescription,
    Number,
    SampleLayout,
    SampleParts,
    ScopeRows,
    bounds_of,
)
from collector.normalise.values import AttributeReader, attributes_of
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample


class Learned(NamedTuple):
    """A layout, and an encoded scope that has this layout."""

    scoped: bytes
    simulated: bool
    about: LayoutDescription


def learn(body: bytes, now_unix_ns: int) -> list[Learned]:
    """The layouts of the scopes of a metrics message.

    A scope has no layout if it has no sample, if a point is refused, or if `number_positions` does
    not support its bytes.
    """
    found = []
    for resource, scoped, _ in encoded_scopes(body):
        about = _describe_message(resource, scoped, now_unix_ns)
        if about is not None:
            found.append(Learned(scoped, origin_of(resource).simulated, about))
    return found


def _describe_message(resource: bytes, scoped: bytes, now_unix_ns: int) -> LayoutDescription | None:
    metrics = decoded(ScopeMetrics, scoped)
    batch = normalise_points(_message_of_one_scope(resource, metrics), now_unix_ns)
    if batch.refused or not batch.accepted:
        return None
    try:
        numbers = numbers_in(scoped)
    except IrregularError:
        return None
    points = list(_points(metrics))
    if len(points) != len(numbers):
        return None
    origin = origin_of(resource)
    about = _description(
        batch,
        [(*point, at) for point, at in zip(points, numbers, strict=True)],
        batch.truncated_texts - origin.truncated_texts,
    )
    if about is None:
        return None
    # Check that reading by the layout returns the same rows as `normalise_points`.
    rows = SampleLayout(about).read(scoped, origin, now_unix_ns)
    return about if repr(rows) == repr(ScopeRows(batch.samples, batch.gpus)) else None


def _message_of_one_scope(resource: bytes, metrics: ScopeMetrics) -> bytes:
    group = ResourceMetrics(resource=decoded(Resource, resource), scope_metrics=[metrics])
    return ExportMetricsServiceRequest(resource_metrics=[group]).SerializeToString()


def _points(metrics: ScopeMetrics) -> Iterator[tuple[Metric, NumberDataPoint]]:
    for metric in metrics.metrics:
        shape = metric.WhichOneof("data")
        for point in () if shape is None else getattr(metric, shape).data_points:
            yield metric, point


_PER_MESSAGE: Final = frozenset({"replica", "region", "process", "at_unix_ns", "started_unix_ns"})
"""Fields that a layout does not contain: labels of the resource, and timestamps."""


class _Parts:
    def __init__(self, row: EngineSample | GpuSample, points: int) -> None:
        self._row = row
        self._points = points
        self.times: list[int] = []
        self.starts: list[int] = []
        # If two points of a sum have the same label, the later point is used. `normalise_points`
        # does the same.
        self._values: dict[str, dict[str | None, int]] = {}

    def set(self, field: str, part: str | None, place: int) -> None:
        self._values.setdefault(field, {})[part] = place

    def found(self) -> SampleParts:
        values = {name: tuple(each.values()) for name, each in self._values.items()}
        changing = _PER_MESSAGE | values.keys()
        return SampleParts(
            {
                each.name: None if each.name in changing else getattr(self._row, each.name)
                for each in fields(self._row)
            },
            tuple(self.times),
            tuple(self.starts),
            {name: places[0] for name, places in values.items() if len(places) == 1},
            {name: places for name, places in values.items() if len(places) > 1},
            self._points,
        )


_ENGINE_KEY, _GPU_KEY = attrgetter("engine", "at_unix_ns"), attrgetter("gpu", "at_unix_ns")
_Point = tuple[Metric, NumberDataPoint, PointNumbers]


def _description(
    batch: NormalisedBatch, points: Sequence[_Point], truncated_texts: int
) -> LayoutDescription | None:
    """The description of a scope, or None if a value has an unusual type."""
    numbers = sorted(each for point in points for each in _numbers(*point))
    places = {number.offset: place for place, number in enumerate(numbers)}
    engines = {
        _ENGINE_KEY(row): _Parts(row, points)
        for row, points in zip(batch.samples, batch.sample_points, strict=True)
    }
    gpus = {
        _GPU_KEY(row): _Parts(row, points)
        for row, points in zip(batch.gpus, batch.gpu_points, strict=True)
    }
    bounds = []
    for metric, point, at in points:
        target = _target(metric)
        if target is None or _without_value(point):
            continue
        if at.time is None or at.value is None or (target.quantity == "count" and at.is_double):
            return None
        value, of_engine = places[at.value], metric.name in FIELDS
        bounds.append(bounds_of(value, target))
        reader = AttributeReader(attributes_of(point.attributes))
        if of_engine:
            parts = engines[reader.count(names.ENGINE), point.time_unix_nano]
            part = reader.text(names.HOOK) or reader.text(names.DROP_REASON)
            if part != names.UNAUTHENTICATED:
                parts.set(target.name, part, value)
        else:
            parts = gpus[reader.label(names.GPU), point.time_unix_nano]
            if target.name != "throttle_reasons":
                parts.set(target.name, None, value)
        parts.times.append(places[at.time])
        if of_engine and at.start is not None:
            parts.starts.append(places[at.start])
    return LayoutDescription(
        tuple(numbers),
        tuple(bounds),
        tuple(each.found() for each in engines.values()),
        tuple(each.found() for each in gpus.values()),
        batch.accepted,
        dict(batch.skipped),
        truncated_texts,
    )


def _numbers(metric: Metric, point: NumberDataPoint, at: PointNumbers) -> Iterator[Number]:
    for timestamp in (at.start, at.time):
        if timestamp is not None:
            yield Number(timestamp, TIMESTAMP)
    if at.value is not None:
        target = _target(metric)
        as_float = target is not None and target.quantity != "count"
        kind = DOUBLE if at.is_double else INTEGER
        yield Number(at.value, kind, as_float and not at.is_double)


def _target(metric: Metric) -> SampleField | None:
    return FIELDS.get(metric.name) or GPU_FIELDS.get(metric.name)


def _without_value(point: NumberDataPoint) -> bool:
    return bool(point.flags & DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK)
