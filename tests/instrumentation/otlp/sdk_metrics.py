"""Convert engine samples to the SDK's metrics, to check the plugin's own encoder."""

from collections.abc import Iterable

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineStateSample

_SCOPE = InstrumentationScope(names.SCOPE)


def metrics_of(samples: Iterable[EngineStateSample], resource: Resource) -> MetricsData:
    """Return all gauges and totals, each metric once. `samples` are in the order of time."""
    gauges: dict[str, list[NumberDataPoint]] = {}
    totals: dict[str, list[NumberDataPoint]] = {}
    for at_unix_ns, state in samples:
        attributes: dict[str, str | int] = {names.ENGINE: state.engine}
        if state.model is not None:
            attributes[names.REQUEST_MODEL] = state.model
        if state.config is not None:
            attributes[names.CONFIG] = state.config
        for name, value in state.gauges.items():
            gauges.setdefault(name, []).append(
                NumberDataPoint(attributes, state.started_unix_ns, at_unix_ns, value)
            )
        for name, value in state.totals.items():
            totals.setdefault(name, []).append(
                NumberDataPoint(attributes, state.started_unix_ns, at_unix_ns, value)
            )
        for name, label, counts in (
            (names.HOOK_FAILURES, names.HOOK, state.failures),
            (names.SPANS_DROPPED, names.DROP_REASON, state.drops),
        ):
            for key, count in counts.items():
                labelled = {**attributes, label: key}
                totals.setdefault(name, []).append(
                    NumberDataPoint(labelled, state.started_unix_ns, at_unix_ns, count)
                )
    metrics = [
        Metric(name, None, names.UNITS[name], Gauge(points)) for name, points in gauges.items()
    ] + [
        Metric(
            name,
            None,
            names.UNITS[name],
            Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True),
        )
        for name, points in totals.items()
    ]
    scope = ScopeMetrics(_SCOPE, metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])
