from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.metrics import EngineState, metrics_of

from simulator.merging import merged


def test_no_sample_is_lost_on_the_way_to_the_wire() -> None:
    """Three instants of two replicas: two resources, each metric once, three points each."""
    samples = []
    for at in (1, 2, 3):
        for replica in ("a", "b"):
            state = EngineState(0, 0, gauges={names.WAITING: at}, totals={names.STEPS: 10 * at})
            resource = Resource({names.SERVICE_INSTANCE_ID: replica})
            samples.append(metrics_of([state], resource, at))
    encoded = encode_metrics(merged(samples))
    assert len(encoded.resource_metrics) == 2
    for entry in encoded.resource_metrics:
        waiting, steps = entry.scope_metrics[0].metrics
        assert (waiting.name, steps.name) == (names.WAITING, names.STEPS)
        assert [(p.time_unix_nano, p.as_int) for p in waiting.gauge.data_points] == [
            (1, 1),
            (2, 2),
            (3, 3),
        ]
        assert [p.as_int for p in steps.sum.data_points] == [10, 20, 30]
        assert steps.sum.is_monotonic


def test_nothing_merged_is_nothing() -> None:
    """An empty export is no error."""
    assert merged([]).resource_metrics == []
