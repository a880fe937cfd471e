"""Convert OTLP data points to engine samples. Pure.

All points with the same replica, engine, process and timestamp form one sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from tailspan_vllm import names

from collector.drop_reasons import Refusal, Skip
from collector.normalise.batch import NormalisedBatch
from collector.normalise.data_points import SampleField, measured, points_in, targets, value_of
from collector.normalise.gpu_points import FIELDS as GPU_FIELDS
from collector.normalise.gpu_points import GpuPoints
from collector.normalise.otlp_envelope import decoded, not_too_many, unfold
from collector.normalise.resources import ResourceLabels, origin_of
from collector.normalise.values import (
    AttributeReader,
    RefusalError,
    attributes_of,
    bounded_total,
    instant,
)
from telemetry.engines import EngineSample
from telemetry.requests import Source

FIELDS: Final = targets(EngineSample)


class _Key(NamedTuple):
    replica: str
    engine: int
    process: int
    at_unix_ns: int


@dataclass(slots=True)
class _Gathered:
    """A partly assembled sample.

    Some metrics have one point for each hook of the plugin or for each drop reason. The points of
    such a metric are summed.
    """

    origin: ResourceLabels
    model: str | None = None
    config: str | None = None
    started_unix_ns: int = 0
    points: int = 0
    values: dict[tuple[str, str | None], float] = field(default_factory=dict)


def normalise_points(body: bytes, now_unix_ns: int) -> NormalisedBatch:
    """The engine and GPU samples of an OTLP metrics message.

    Raises:
        MalformedError: the body is not an OTLP metrics message.
        TooLargeError: it has too many items.
    """
    batch = NormalisedBatch()
    gathered: dict[_Key, _Gathered] = {}
    gpus = GpuPoints()
    points = 0
    for resource, scope, metrics in unfold(body):
        origin = origin_of(resource)
        batch.truncated_texts += origin.truncated_texts
        for metric in (decoded(Metric, raw) for raw in metrics):
            # An empty point takes two bytes, so each point counts as an item.
            points += (number := points_in(metric))
            not_too_many(points)
            if scope != names.SCOPE:
                batch.skipped[Skip.NOT_OURS] += number
            elif metric.name in FIELDS:
                target = FIELDS[metric.name]
                for point in measured(batch, metric, target):
                    try:
                        _take(batch, gathered, target, point, origin, now_unix_ns)
                    except RefusalError as refusal:
                        batch.refused[refusal.reason] += 1
                    else:
                        batch.accepted += 1
            elif metric.name in GPU_FIELDS:
                gpus.take(batch, metric, origin, now_unix_ns)
            else:
                batch.skipped[Skip.UNKNOWN_METRIC] += number
    batch.samples = [_sample(key, each) for key, each in gathered.items()]
    batch.sample_points = [each.points for each in gathered.values()]
    batch.gpus = gpus.samples()
    batch.gpu_points = gpus.points()
    return batch


def _take(
    batch: NormalisedBatch,
    gathered: dict[_Key, _Gathered],
    target: SampleField,
    point: NumberDataPoint,
    origin: ResourceLabels,
    now_unix_ns: int,
) -> None:
    reader = AttributeReader(attributes_of(point.attributes))
    engine = reader.count(names.ENGINE)
    if engine is None:
        raise RefusalError(Refusal.MISSING_ENGINE)
    if origin.replica is None:
        raise RefusalError(Refusal.MISSING_REPLICA)
    if origin.process is None:
        raise RefusalError(Refusal.MISSING_PROCESS)
    at_unix_ns = instant(point.time_unix_nano, now_unix_ns)
    # OpenTelemetry's exporters send gauges without a start timestamp.
    started_unix_ns = point.start_time_unix_nano
    if started_unix_ns == 0 and target.shape == "sum":
        raise RefusalError(Refusal.MISSING_START)
    if started_unix_ns and instant(started_unix_ns, now_unix_ns) > at_unix_ns:
        raise RefusalError(Refusal.ENDS_BEFORE_START)
    value = value_of(point, target)
    model, config = reader.text(names.REQUEST_MODEL), reader.text(names.CONFIG)
    part = reader.text(names.HOOK) or reader.text(names.DROP_REASON)

    key = _Key(origin.replica, engine, origin.process, at_unix_ns)
    each = gathered.setdefault(key, _Gathered(origin))
    each.model = model or each.model
    each.config = config or each.config
    each.started_unix_ns = max(each.started_unix_ns, started_unix_ns)
    each.points += 1
    if part != names.UNAUTHENTICATED:  # requests that the server refused
        each.values[target.name, part] = value
    batch.truncated_texts += reader.truncated_texts


def _sample(key: _Key, each: _Gathered) -> EngineSample:
    return EngineSample(
        **key._asdict(),
        started_unix_ns=each.started_unix_ns or key.at_unix_ns,
        simulated=each.origin.simulated,
        source=Source.SIMULATOR if each.origin.simulated else Source.INSTRUMENTATION,
        model=each.model,
        region=each.origin.region,
        config=each.config,
        **dict(_totals(each)),
    )


def _totals(each: _Gathered) -> Iterator[tuple[str, Any]]:
    sums: dict[str, float] = {}
    for (name, _part), value in each.values.items():
        sums[name] = bounded_total(sums.get(name, 0) + value)
    yield from sums.items()
