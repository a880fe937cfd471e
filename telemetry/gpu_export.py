"""Convert GPU samples to OpenTelemetry metrics. Pure."""

from collections.abc import Iterable

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from tailspan_vllm import names

from telemetry.gpus import METRICS, GpuSample

_SCOPE = InstrumentationScope(names.SCOPE)


def gpu_metrics_of(samples: Iterable[GpuSample], resource: Resource) -> ResourceMetrics:
    """OTLP metrics of one replica's GPUs. The resource is the replica. Unknown values have no data
    point."""
    points: dict[str, list[NumberDataPoint]] = {}
    for sample in samples:
        attributes: dict[str, str] = {names.GPU: sample.gpu}
        if sample.model_name is not None:
            attributes[names.GPU_MODEL] = sample.model_name
        if sample.source is not None:
            attributes[names.GPU_SOURCE] = sample.source.value
        for field, metric in METRICS.items():
            value = getattr(sample, field)
            if value is not None:
                point = NumberDataPoint(attributes, 0, sample.at_unix_ns, value)
                points.setdefault(metric, []).append(point)
        if sample.throttle_reasons is not None:
            reasons = [each for each in sample.throttle_reasons.split(",") if each]
            with_reasons = {**attributes, names.GPU_THROTTLE_REASONS: sample.throttle_reasons}
            point = NumberDataPoint(with_reasons, 0, sample.at_unix_ns, len(reasons))
            points.setdefault(names.GPU_THROTTLED, []).append(point)
    metrics = [
        Metric(name, None, names.GPU_UNITS[name], _data(name, points[name])) for name in points
    ]
    return ResourceMetrics(resource, [ScopeMetrics(_SCOPE, metrics, schema_url="")], schema_url="")


def _data(name: str, points: list[NumberDataPoint]) -> Gauge | Sum:
    if name == names.GPU_ENERGY:
        return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Gauge(points)
