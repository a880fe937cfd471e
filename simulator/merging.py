"""Several samples in one export: each resource once, each metric once, a point per sample.

Pure. OpenTelemetry's encoder keeps only the last of several entries for one resource, and
says nothing of the others; so what goes out together must be put together first.
"""

from collections.abc import Iterable
from dataclasses import replace

from opentelemetry.sdk.metrics.export import Metric, MetricsData, ResourceMetrics
from opentelemetry.sdk.resources import Resource


def merged(several: Iterable[MetricsData]) -> MetricsData:
    """All points of `several`, of one instrumentation scope, in their order."""
    seen: dict[Resource, ResourceMetrics] = {}
    metrics: dict[Resource, dict[str, list[Metric]]] = {}
    for data in several:
        for entry in data.resource_metrics:
            seen.setdefault(entry.resource, entry)
            by_name = metrics.setdefault(entry.resource, {})
            for scope in entry.scope_metrics:
                for metric in scope.metrics:
                    by_name.setdefault(metric.name, []).append(metric)
    return MetricsData(
        [
            replace(
                entry,
                scope_metrics=[
                    replace(
                        entry.scope_metrics[0],
                        metrics=[_joined(same) for same in metrics[resource].values()],
                    )
                ],
            )
            for resource, entry in seen.items()
        ]
    )


def _joined(metrics: list[Metric]) -> Metric:
    first = metrics[0]
    points = [point for metric in metrics for point in metric.data.data_points]
    # The points are of the kind that `first` holds; the SDK's types cannot say so.
    return replace(first, data=replace(first.data, data_points=points))  # type: ignore[arg-type]
