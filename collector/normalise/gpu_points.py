"""Convert OTLP data points to GPU samples. Pure.

All points with the same replica, GPU and timestamp form one sample. Their order does not matter.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from tailspan_vllm import names

from collector.drop_reasons import Refusal
from collector.normalise.batch import NormalisedBatch
from collector.normalise.data_points import SampleField, measured, targets, value_of
from collector.normalise.resources import ResourceLabels
from collector.normalise.values import AttributeReader, RefusalError, attributes_of, instant
from telemetry.gpus import GpuSample, GpuSource, throttle_reasons

FIELDS: Final = targets(GpuSample)


class _Key(NamedTuple):
    replica: str
    gpu: str
    at_unix_ns: int


@dataclass(slots=True)
class _Gathered:
    simulated: bool
    source: GpuSource | None = None
    model_name: str | None = None
    points: int = 0
    values: dict[str, Any] = field(default_factory=dict)


class GpuPoints:
    """Collects the points of one message, and assembles samples from them."""

    def __init__(self) -> None:
        self._gathered: dict[_Key, _Gathered] = {}

    def take(
        self, batch: NormalisedBatch, metric: Metric, origin: ResourceLabels, now_unix_ns: int
    ) -> None:
        """Add the points of a metric, and count invalid points."""
        target = FIELDS[metric.name]
        for point in measured(batch, metric, target):
            try:
                self._take(batch, target, point, origin, now_unix_ns)
            except RefusalError as refusal:
                batch.refused[refusal.reason] += 1
            else:
                batch.accepted += 1

    def samples(self) -> list[GpuSample]:
        """The samples. There is one for each GPU and timestamp."""
        return [
            GpuSample(
                **key._asdict(),
                simulated=each.simulated,
                source=each.source,
                model_name=each.model_name,
                **each.values,
            )
            for key, each in self._gathered.items()
        ]

    def points(self) -> list[int]:
        """The number of points in each sample."""
        return [each.points for each in self._gathered.values()]

    def _take(
        self,
        batch: NormalisedBatch,
        target: SampleField,
        point: NumberDataPoint,
        origin: ResourceLabels,
        now_unix_ns: int,
    ) -> None:
        reader = AttributeReader(attributes_of(point.attributes))
        gpu = reader.label(names.GPU)
        if gpu is None:
            raise RefusalError(Refusal.MISSING_GPU)
        if origin.replica is None:
            raise RefusalError(Refusal.MISSING_REPLICA)
        at_unix_ns = instant(point.time_unix_nano, now_unix_ns)
        value: Any = value_of(point, target)
        if target.name == "throttle_reasons":
            given = reader.text(names.GPU_THROTTLE_REASONS) or ""
            value = throttle_reasons({reason.strip() for reason in given.split(",")} - {""})
        model_name = reader.text(names.GPU_MODEL)
        source = _source(reader.text(names.GPU_SOURCE), origin)

        key = _Key(origin.replica, gpu, at_unix_ns)
        each = self._gathered.setdefault(key, _Gathered(origin.simulated))
        each.source = source or each.source
        each.model_name = model_name or each.model_name
        each.points += 1
        each.values[target.name] = value
        batch.truncated_texts += reader.truncated_texts


def _source(given: str | None, origin: ResourceLabels) -> GpuSource | None:
    if origin.simulated:
        return GpuSource.SIMULATOR
    return next((source for source in GpuSource if source == given), None)
