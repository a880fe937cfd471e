from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from tailspan_vllm import names

from collector.drop_reasons import Refusal, Skip
from collector.normalise.engine_points import normalise_points
from collector.normalise.gpu_points import FIELDS
from telemetry.gpus import METRICS, GpuSample, GpuSource

NOW_UNIX_NS = 1_790_000_000 * 10**9
MEASURED: dict[str, float] = {
    names.GPU_DRAM_UTILIZATION: 0.5,
    names.GPU_MEMORY_USED: 70 * 2**30,
    names.GPU_POWER: 512.5,
    names.GPU_ENERGY: 1e9,
    names.GPU_SM_CLOCK: 1_980_000_000,
}


def _pair(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def _add(metrics: list[Metric], name: str, value: float, **attributes: str) -> None:
    metric = Metric(name=name)
    if FIELDS.get(name, FIELDS[names.GPU_POWER]).shape == "sum":
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = (
            AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        )
        point = metric.sum.data_points.add()
    else:
        point = metric.gauge.data_points.add()
    point.time_unix_nano = NOW_UNIX_NS
    point.as_double = value
    point.attributes.extend(_pair(key, text) for key, text in attributes.items())
    metrics.append(metric)


def _message(metrics: list[Metric], *, simulated: bool = False) -> bytes:
    message = ExportMetricsServiceRequest()
    group = message.resource_metrics.add()
    group.resource.attributes.append(_pair(names.SERVICE_INSTANCE_ID, "replica-1"))
    if simulated:
        group.resource.attributes.append(_pair(names.SIMULATED, "true"))
    scoped = group.scope_metrics.add()
    scoped.scope.name = names.SCOPE
    scoped.metrics.extend(metrics)
    return message.SerializeToString()


@pytest.fixture
def metrics() -> list[Metric]:
    made: list[Metric] = []
    about = {names.GPU: "GPU-1", names.GPU_MODEL: "NVIDIA H100", names.GPU_SOURCE: "nvml"}
    for name, value in MEASURED.items():
        _add(made, name, value, **about)
    reasons = {names.GPU_THROTTLE_REASONS: "sw_thermal_slowdown, hw_slowdown"}
    _add(made, names.GPU_THROTTLED, 2, **about, **reasons)
    return made


def _every_metric() -> Iterator[str]:
    yield from METRICS.values()
    yield names.GPU_THROTTLED


def test_every_metric_of_the_vocabulary_has_its_field() -> None:
    """If a metric had no field, the collector would drop it without an error."""
    assert set(FIELDS) == set(names.GPU_UNITS) == set(_every_metric())
    assert {field.name for field in FIELDS.values()} <= set(GpuSample.__dataclass_fields__)


def test_an_export_becomes_one_sample(metrics: list[Metric]) -> None:
    """Energy has no start time, because a driver does not report when its counter started."""
    batch = normalise_points(_message(metrics), NOW_UNIX_NS)
    assert batch.gpus == [
        GpuSample(
            replica="replica-1",
            gpu="GPU-1",
            at_unix_ns=NOW_UNIX_NS,
            source=GpuSource.NVML,
            model_name="NVIDIA H100",
            dram_bandwidth_ratio=0.5,
            memory_used_bytes=70 * 2**30,
            power_w=512.5,
            energy_j_total=1e9,
            sm_clock_hz=1_980_000_000,
            throttle_reasons="hw_slowdown,sw_thermal_slowdown",
        )
    ]
    assert not batch.empty
    assert (batch.accepted, batch.refused.total(), batch.skipped.total()) == (6, 0, 0)


def test_a_gpu_that_is_not_throttled_has_an_empty_reason() -> None:
    made: list[Metric] = []
    _add(made, names.GPU_THROTTLED, 0, **{names.GPU: "0"})
    _add(made, names.GPU_POWER, 80.0, **{names.GPU: "1"})
    shown = normalise_points(_message(made), NOW_UNIX_NS).gpus
    assert [(each.gpu, each.throttle_reasons) for each in shown] == [("0", ""), ("1", None)]


def test_the_source_is_the_simulator_or_a_known_sampler(metrics: list[Metric]) -> None:
    [simulated] = normalise_points(_message(metrics, simulated=True), NOW_UNIX_NS).gpus
    assert (simulated.source, simulated.simulated) == (GpuSource.SIMULATOR, True)
    for metric in metrics:
        points = metric.sum.data_points or metric.gauge.data_points
        for pair in points[0].attributes:
            if pair.key == names.GPU_SOURCE:
                pair.value.string_value = "crystal ball"
    [unknown] = normalise_points(_message(metrics), NOW_UNIX_NS).gpus
    assert (unknown.source, unknown.power_w) == (None, 512.5)


def test_a_wrong_point_is_refused_and_the_others_kept(metrics: list[Metric]) -> None:
    by_name = {metric.name: metric for metric in metrics}
    by_name[names.GPU_DRAM_UTILIZATION].gauge.data_points[0].as_double = 50.0
    del by_name[names.GPU_POWER].gauge.data_points[0].attributes[:]
    by_name[
        names.GPU_ENERGY
    ].sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    by_name[names.GPU_MEMORY_USED].gauge.data_points[0].flags = 1
    batch = normalise_points(_message(metrics), NOW_UNIX_NS)
    assert batch.refused == {
        Refusal.OUT_OF_RANGE: 1,
        Refusal.MISSING_GPU: 1,
        Refusal.NOT_CUMULATIVE: 1,
    }
    assert batch.skipped == {Skip.NO_RECORDED_VALUE: 1}
    [sample] = batch.gpus
    assert (sample.sm_clock_hz, sample.dram_bandwidth_ratio) == (1_980_000_000, None)
