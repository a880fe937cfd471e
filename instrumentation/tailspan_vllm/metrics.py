"""Engine samples as OpenTelemetry metrics: the states of engines in, OTLP's model out.

Pure. Gauges are as of their instant; sums are cumulative since the engine's start, so that a
lost export costs resolution and never a count.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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
from tailspan_vllm.fingerprint import Scalar
from tailspan_vllm.machine import UNKNOWN, Machine

_SCOPE = InstrumentationScope(names.SCOPE)

Number = int | float


def _nothing() -> None:
    """There is nothing to add up."""


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
    """Failures of our hooks, by hook. `standing` adds this process's to the engine core's."""
    drops: dict[str, int] = field(default_factory=dict)
    """Requests of this process that are not reported, by reason."""

    load: Any = None
    """The latest word on what it has to do, as `enginestats.load_of` reads it."""
    catch_up: Callable[[], None] = _nothing
    """Adds up what has been noted since; called before the state is told."""
    version: str | None = None
    arguments: dict[str, Scalar] = field(default_factory=dict)
    """The engine arguments in force, as `fingerprint.py` tells them."""
    machine: Machine = UNKNOWN

    def add(self, name: str, amount: Number) -> None:
        """Add to a running total, which begins at zero."""
        self.totals[name] = self.totals.get(name, 0) + amount

    def standing(
        self,
        own_totals: Mapping[str, Number],
        hook_failures: Mapping[str, int],
        drops: Mapping[str, int] | None = None,
    ) -> "EngineState":
        """This state as it stands, which the engine's next step will not change.

        Args:
            own_totals: the instrumentation's totals on itself, told with every engine.
            hook_failures: its failures by hook in this process, likewise.
            drops: requests that it did not report, by reason, likewise.
        """
        return replace(
            self,
            load=None,
            catch_up=_nothing,
            gauges=dict(self.gauges),
            totals={**self.totals, **own_totals},
            failures=dict(Counter(hook_failures) + Counter(self.failures)),
            drops=dict(drops or {}),
        )


class Sample(NamedTuple):
    """One engine as it stood at an instant."""

    at_unix_ns: int
    state: EngineState


def metrics_of(samples: Iterable[Sample], resource: Resource) -> MetricsData:
    """One export: every gauge and total of every sample, each metric once.

    Args:
        samples: in the order of time.
        resource: who reports.
    """
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
                told = {**attributes, label: key}
                totals.setdefault(name, []).append(
                    NumberDataPoint(told, state.started_unix_ns, at_unix_ns, count)
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
