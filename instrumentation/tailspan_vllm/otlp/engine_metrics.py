"""Encodes engine samples as OTLP metrics messages.

Pure. Sums are cumulative since the engine's start, so a lost message loses no counts. All points of
one sample begin with the same bytes, and only their last nine bytes contain the value.
"""

from collections.abc import Iterable, Mapping

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineStateSample, Number
from tailspan_vllm.otlp.encoder import gauge_of, metrics_message, point_value, points_begin, sum_of

_SCOPE = InstrumentationScope(names.SCOPE)

Points = dict[str, list[bytes]]
"""Encoded points by metric, in the order of the first point of each metric."""


def encode_samples(samples: Iterable[EngineStateSample], resource: Resource) -> bytes:
    """Return one message with all gauges and totals, each metric once.

    Args:
        samples: in the order of time.
    """
    gauges: Points = {}
    totals: Points = {}
    for at_unix_ns, state in samples:
        labels: dict[str, str | int] = {names.ENGINE: state.engine}
        if state.model is not None:
            labels[names.REQUEST_MODEL] = state.model
        if state.config is not None:
            labels[names.CONFIG] = state.config
        _add(gauges, points_begin(labels, None, at_unix_ns), state.gauges)
        _add(totals, points_begin(labels, state.started_unix_ns, at_unix_ns), state.totals)
        for name, label, counts in (
            (names.HOOK_FAILURES, names.HOOK, state.failures),
            (names.SPANS_DROPPED, names.DROP_REASON, state.drops),
        ):
            for key, count in counts.items():
                labelled = {**labels, label: key}
                begin = points_begin(labelled, state.started_unix_ns, at_unix_ns)
                _add(totals, begin, {name: count})
    encoded = [gauge_of(name, names.UNITS[name], points) for name, points in gauges.items()]
    encoded += [sum_of(name, names.UNITS[name], points) for name, points in totals.items()]
    return metrics_message(resource, _SCOPE, encoded)


def _add(points: Points, begin: bytes, values: Mapping[str, Number]) -> None:
    for name, value in values.items():
        points.setdefault(name, []).append(begin + point_value(value))
