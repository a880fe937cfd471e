"""Engine samples as OpenTelemetry metrics: the state of each engine in, OTLP's model out.

Pure. Gauges are as of `at_unix_ns`; sums are cumulative since the engine's start, so that a
lost export costs resolution and never a count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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

_SCOPE = InstrumentationScope(names.SCOPE)

Number = int | float


@dataclass(slots=True)
class EngineState:
    """One engine's gauges and running totals, by metric name of `names.py`."""

    engine: int
    started_unix_ns: int
    model: str | None = None
    config: str | None = None
    gauges: dict[str, Number] = field(default_factory=dict)
    totals: dict[str, Number] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    """Failures of our hooks in the engine core, by hook."""

    def add(self, name: str, amount: Number) -> None:
        """Add to a running total, which begins at zero."""
        self.totals[name] = self.totals.get(name, 0) + amount


def metrics_of(
    states: Iterable[EngineState],
    resource: Resource,
    at_unix_ns: int,
    own_totals: Mapping[str, Number] | None = None,
    hook_failures: Mapping[str, int] | None = None,
) -> MetricsData:
    """One export: every gauge and total of every engine, as of `at_unix_ns`.

    Args:
        states: the engines that this process reports.
        resource: who reports.
        at_unix_ns: the instant of the sample.
        own_totals: the instrumentation's totals on itself, told with every engine.
        hook_failures: its failures by hook, likewise.
    """
    gauges: dict[str, list[NumberDataPoint]] = {}
    totals: dict[str, list[NumberDataPoint]] = {}
    for state in states:
        attributes: dict[str, str | int] = {names.ENGINE: state.engine}
        if state.model is not None:
            attributes[names.REQUEST_MODEL] = state.model
        if state.config is not None:
            attributes[names.CONFIG] = state.config
        for name, value in dict(state.gauges).items():
            gauges.setdefault(name, []).append(
                NumberDataPoint(attributes, state.started_unix_ns, at_unix_ns, value)
            )
        for name, value in {**state.totals, **(own_totals or {})}.items():
            totals.setdefault(name, []).append(
                NumberDataPoint(attributes, state.started_unix_ns, at_unix_ns, value)
            )
        for hook, failures in (Counter(hook_failures) + Counter(state.failures)).items():
            told = {**attributes, names.HOOK: hook}
            totals.setdefault(names.HOOK_FAILURES, []).append(
                NumberDataPoint(told, state.started_unix_ns, at_unix_ns, failures)
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
