"""OTLP data points → GPU samples.

Pure. Points of one (replica, GPU, instant) make one sample, of whatever order; a refused
point costs its own value and leaves the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from tailspan_vllm import names

from collector.drop_reasons import Refusal
from collector.normalise.batch import Batch
from collector.normalise.data_points import Field, Quantity, measured, value_of
from collector.normalise.resources import Origin
from collector.normalise.values import Reader, RefusalError, attributes_of, instant
from telemetry.gpus import METRICS, GpuSample, GpuSource, throttle_reasons

_COUNTS: Final = frozenset(
    {
        "memory_used_bytes",
        "memory_total_bytes",
        "sm_clock_hz",
        "sm_clock_max_hz",
        "memory_clock_hz",
        "foreign_processes",
    }
)


def _quantity(field_name: str) -> Quantity:
    if field_name in _COUNTS:
        return "count"
    return "ratio" if field_name.endswith("_ratio") else "number"


FIELDS: Final[Mapping[str, Field]] = {
    **{
        metric: Field(name, "sum" if name.endswith("_total") else "gauge", _quantity(name))
        for name, metric in METRICS.items()
    },
    names.GPU_THROTTLED: Field("throttle_reasons", "gauge", "count"),
}
"""The one table from the wire's metric names to the sample's fields."""


class _Key(NamedTuple):
    replica: str
    gpu: str
    at_unix_ns: int


@dataclass(slots=True)
class _Gathered:
    """A sample in the making."""

    simulated: bool
    source: GpuSource | None = None
    model_name: str | None = None
    points: int = 0
    values: dict[str, Any] = field(default_factory=dict)


class GpuPoints:
    """Gathers one message's points, then makes samples of them."""

    def __init__(self) -> None:
        self._gathered: dict[_Key, _Gathered] = {}

    def take(self, batch: Batch, metric: Metric, origin: Origin, now_unix_ns: int) -> None:
        """The points of a metric of `FIELDS`; what is wrong with one is counted."""
        target = FIELDS[metric.name]
        for point in measured(batch, metric, target):
            try:
                self._take(batch, target, point, origin, now_unix_ns)
            except RefusalError as refusal:
                batch.refused[refusal.reason] += 1
            else:
                batch.accepted += 1

    def samples(self) -> list[GpuSample]:
        """One for each GPU and instant."""
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
        """How many points each of them was made of."""
        return [each.points for each in self._gathered.values()]

    def _take(
        self,
        batch: Batch,
        target: Field,
        point: NumberDataPoint,
        origin: Origin,
        now_unix_ns: int,
    ) -> None:
        reader = Reader(attributes_of(point.attributes))
        gpu = reader.label(names.GPU)
        if gpu is None:
            raise RefusalError(Refusal.MISSING_GPU)
        if origin.replica is None:
            raise RefusalError(Refusal.MISSING_REPLICA)
        at_unix_ns = instant(point.time_unix_nano, now_unix_ns)
        value: Any = value_of(point, target)
        if target.name == "throttle_reasons":
            told = reader.text(names.GPU_THROTTLE_REASONS) or ""
            value = throttle_reasons({reason.strip() for reason in told.split(",")} - {""})
        model_name = reader.text(names.GPU_MODEL)
        source = _source(reader.text(names.GPU_SOURCE), origin)

        key = _Key(origin.replica, gpu, at_unix_ns)
        each = self._gathered.setdefault(key, _Gathered(origin.simulated))
        each.source = source or each.source
        each.model_name = model_name or each.model_name
        each.points += 1
        each.values[target.name] = value
        batch.truncated_texts += reader.truncated_texts


def _source(told: str | None, origin: Origin) -> GpuSource | None:
    """Who measured; a sampler that we do not know is None, and its numbers are kept."""
    if origin.simulated:
        return GpuSource.SIMULATOR
    return next((source for source in GpuSource if source == told), None)
