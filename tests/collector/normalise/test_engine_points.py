from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Metric,
    NumberDataPoint,
)
from tailspan_vllm import names

from collector.drop_reasons import Refusal, Skip
from collector.normalise.engine_points import FIELDS, normalise_points
from collector.normalise.values import MAX_NUMBER
from telemetry.engines import EngineSample
from telemetry.requests import Source

Message = ExportMetricsServiceRequest
Factory = Callable[..., Message]


def _metrics(message: Message) -> Iterator[Metric]:
    for group in message.resource_metrics:
        for scoped in group.scope_metrics:
            yield from scoped.metrics


def _metric(message: Message, name: str) -> Metric:
    return next(metric for metric in _metrics(message) if metric.name == name)


def _point(message: Message, name: str) -> NumberDataPoint:
    metric = _metric(message, name)
    points = metric.gauge.data_points if metric.HasField("gauge") else metric.sum.data_points
    return points[0]


def _points(message: Message) -> int:
    return sum(
        0
        if (shape := metric.WhichOneof("data")) is None
        else len(getattr(metric, shape).data_points)
        for metric in _metrics(message)
    )


def test_every_metric_of_the_vocabulary_has_its_field() -> None:
    """If a metric had no field, the collector would drop it without an error."""
    assert set(FIELDS) == set(names.UNITS)
    assert {field.name for field in FIELDS.values()} <= set(EngineSample.__dataclass_fields__)


def test_an_export_becomes_one_sample(metrics_message: Factory, now_unix_ns: int) -> None:
    batch = normalise_points(metrics_message().SerializeToString(), now_unix_ns)
    assert batch.samples == [
        EngineSample(
            replica="replica-1",
            source=Source.INSTRUMENTATION,
            engine=0,
            process=4242,
            at_unix_ns=now_unix_ns,
            started_unix_ns=now_unix_ns - 60 * 10**9,
            model="llama",
            region="eu-north-1",
            waiting=3,
            running=8,
            kv_usage_ratio=0.5,
            longest_step_s=0.02,
            steps_total=1000,
            busy_s_total=12.5,
            prefill_tokens_total=5000,
            decode_tokens_total=900,
            prefix_cache_queries_tokens_total=4000,
            prefix_cache_hits_tokens_total=1000,
            preemptions_total=2,
            spans_dropped_total=0,
        )
    ]
    assert (batch.accepted, batch.refused.total(), batch.skipped.total()) == (12, 0, 0)


def test_cpu_time_of_process_engine_and_host_is_read(
    metrics_message: Factory, now_unix_ns: int
) -> None:
    metrics = metrics_message(
        gauges={names.HOST_CPUS: 16},
        totals={
            names.PROCESS_CPU_TIME: 31.5,
            names.CORE_CPU_TIME: 58.0,
            names.HOST_BUSY_TIME: 120.0,
            names.HOST_STEAL_TIME: 0.25,
        },
    )
    [sample] = normalise_points(metrics.SerializeToString(), now_unix_ns).samples
    assert (sample.process_cpu_s_total, sample.core_cpu_s_total) == (31.5, 58.0)
    assert (sample.host_cpu_busy_s_total, sample.host_cpu_steal_s_total) == (120.0, 0.25)
    assert sample.host_cpus == 16


def test_engines_of_one_process_have_separate_samples(
    metrics_message: Factory, now_unix_ns: int
) -> None:
    message, second = metrics_message(), metrics_message(engine=1)
    message.resource_metrics.extend(second.resource_metrics)
    samples = normalise_points(message.SerializeToString(), now_unix_ns).samples
    assert [sample.engine for sample in samples] == [0, 1]


def test_a_number_may_have_the_other_otlp_type(metrics_message: Factory, now_unix_ns: int) -> None:
    """A count may be a double such as 1000.0, and a duration may be an integer."""
    message = metrics_message()
    _point(message, names.STEPS).as_double = 1000.0
    _point(message, names.BUSY_TIME).as_int = 12
    [sample] = normalise_points(message.SerializeToString(), now_unix_ns).samples
    assert (sample.steps_total, type(sample.steps_total)) == (1000, int)
    assert (sample.busy_s_total, type(sample.busy_s_total)) == (12.0, float)


def test_failures_by_hook_add_up(metrics_message: Factory, now_unix_ns: int) -> None:
    message = metrics_message(totals={names.HOOK_FAILURES: 2})
    points = _metric(message, names.HOOK_FAILURES).sum.data_points
    other = points.add()
    other.CopyFrom(points[0])
    other.as_int = 5
    other.attributes.append(KeyValue(key=names.HOOK, value=AnyValue(string_value="add_request")))
    [sample] = normalise_points(message.SerializeToString(), now_unix_ns).samples
    assert sample.hook_failures_total == 7


def test_a_poor_fit_may_have_a_negative_score(metrics_message: Factory, now_unix_ns: int) -> None:
    """R² may be negative at first. No other value may be negative."""
    message = metrics_message(gauges={names.STEP_MODEL_R_SQUARED: -6.5})
    batch = normalise_points(message.SerializeToString(), now_unix_ns)
    [sample] = batch.samples
    assert (sample.step_model_r_squared, batch.refused.total()) == (-6.5, 0)


def test_an_engine_without_totals_has_the_current_start(
    metrics_message: Factory, now_unix_ns: int
) -> None:
    """Gauges have no start time in OTLP."""
    message = metrics_message(totals={})
    scoped = message.resource_metrics[0].scope_metrics[0]
    kept = [metric for metric in scoped.metrics if metric.HasField("gauge")]
    del scoped.metrics[:]
    scoped.metrics.extend(kept)
    [sample] = normalise_points(message.SerializeToString(), now_unix_ns).samples
    assert (sample.waiting, sample.started_unix_ns) == (3, now_unix_ns)


def test_other_metrics_are_skipped_and_counted(metrics_message: Factory, now_unix_ns: int) -> None:
    message = metrics_message()
    _metric(message, names.WAITING).name = "tailspan.engine.mood"
    _point(message, names.RUNNING).flags = 1
    foreign = metrics_message().resource_metrics[0]
    foreign.scope_metrics[0].scope.name = "opentelemetry.instrumentation.system"
    message.resource_metrics.append(foreign)
    batch = normalise_points(message.SerializeToString(), now_unix_ns)
    assert batch.skipped == {Skip.UNKNOWN_METRIC: 1, Skip.NO_RECORDED_VALUE: 1, Skip.NOT_OURS: 12}
    [sample] = batch.samples
    assert (sample.waiting, sample.running, sample.steps_total) == (None, None, 1000)


def _at(name: str, **values: Any) -> Callable[[Message], None]:
    def corrupt(message: Message) -> None:
        for key, value in values.items():
            setattr(_point(message, name), key, value)

    return corrupt


def _delta(message: Message) -> None:
    _metric(
        message, names.STEPS
    ).sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA


def _not_monotonic(message: Message) -> None:
    _metric(message, names.STEPS).sum.is_monotonic = False


def _gauge_for_a_sum(message: Message) -> None:
    metric = _metric(message, names.STEPS)
    points = list(metric.sum.data_points)
    metric.gauge.data_points.extend(points)


def _no_value(message: Message) -> None:
    _point(message, names.STEPS).ClearField("as_int")


def _no_engine(message: Message) -> None:
    del _point(message, names.STEPS).attributes[:]


@pytest.mark.parametrize(
    ("corrupt", "reason"),
    [
        (_at(names.STEPS, as_int=-1), Refusal.NEGATIVE),
        (_at(names.STEPS, as_double=1.5), Refusal.WRONG_TYPE),
        (_at(names.STEPS, as_double=float("nan")), Refusal.NOT_FINITE),
        (_at(names.STEPS, as_double=1e300), Refusal.OUT_OF_RANGE),
        (_at(names.STEPS, time_unix_nano=0), Refusal.INSTANT_OUT_OF_RANGE),
        (_at(names.STEPS, time_unix_nano=2**64 - 1), Refusal.IN_THE_FUTURE),
        (_at(names.STEPS, start_time_unix_nano=0), Refusal.MISSING_START),
        (_at(names.STEPS, start_time_unix_nano=1), Refusal.INSTANT_OUT_OF_RANGE),
        (_at(names.STEPS, start_time_unix_nano=1_790_000_001 * 10**9), Refusal.ENDS_BEFORE_START),
        (_at(names.BUSY_TIME, as_double=float("inf")), Refusal.NOT_FINITE),
        (_at(names.BUSY_TIME, as_double=1e12), Refusal.ABSURD_DURATION),
        (_at(names.LONGEST_STEP, as_double=1e6), Refusal.ABSURD_DURATION),
        (_at(names.KV_USAGE, as_double=50.0), Refusal.OUT_OF_RANGE),
        (_delta, Refusal.NOT_CUMULATIVE),
        (_not_monotonic, Refusal.NOT_CUMULATIVE),
        (_gauge_for_a_sum, Refusal.WRONG_TYPE),
        (_no_value, Refusal.MISSING_VALUE),
        (_no_engine, Refusal.MISSING_ENGINE),
    ],
)
def test_a_wrong_point_is_refused_and_the_others_kept(
    metrics_message: Factory, now_unix_ns: int, corrupt: Callable[[Message], None], reason: Refusal
) -> None:
    message = metrics_message()
    corrupt(message)
    batch = normalise_points(message.SerializeToString(), now_unix_ns)
    assert batch.refused == {reason: 1}
    assert batch.accepted == 11
    [sample] = batch.samples
    assert None in (sample.steps_total, sample.busy_s_total, sample.longest_step_s) or (
        sample.kv_usage_ratio is None
    )


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ((names.PROCESS_PID,), Refusal.MISSING_PROCESS),
        ((names.SERVICE_INSTANCE_ID, names.SERVICE_NAME), Refusal.MISSING_REPLICA),
    ],
)
def test_a_sample_without_replica_or_process_is_refused(
    metrics_message: Factory, now_unix_ns: int, missing: tuple[str, ...], reason: Refusal
) -> None:
    """Without these attributes, the totals of two senders would be mixed."""
    message = metrics_message()
    attributes = message.resource_metrics[0].resource.attributes
    kept = [each for each in attributes if each.key not in missing]
    del attributes[:]
    attributes.extend(kept)
    batch = normalise_points(message.SerializeToString(), now_unix_ns)
    assert batch.refused == {reason: 12}
    assert batch.empty


@given(st.binary(max_size=400))
def test_random_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        message = Message.FromString(body)
    except DecodeError:
        return
    normalise_points(message.SerializeToString(), 1_790_000_000 * 10**9)


_VALUE = st.one_of(
    st.builds(lambda value: NumberDataPoint(as_double=value), st.floats()),
    st.builds(lambda value: NumberDataPoint(as_int=value), st.integers(-(2**63), 2**63 - 1)),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    values=st.dictionaries(st.sampled_from(sorted(FIELDS)), _VALUE, max_size=4),
    instants=st.lists(st.integers(0, 2**64 - 1), max_size=2),
    cut=st.tuples(st.integers(0, 10_000), st.integers(0, 255)),
)
def test_every_mutated_message_is_accounted_for(
    metrics_message: Factory,
    now_unix_ns: int,
    values: dict[str, NumberDataPoint],
    instants: list[int],
    cut: tuple[int, int],
) -> None:
    """Each point is stored, skipped or refused, and each stored point fits into the database."""
    message = metrics_message()
    for metric in _metrics(message):
        if metric.name in values:
            _point(message, metric.name).MergeFrom(values[metric.name])
    for instant, metric in zip(instants, _metrics(message), strict=False):
        _point(message, metric.name).time_unix_nano = instant
    body = bytearray(message.SerializeToString())
    at, byte = cut
    if at < len(body):
        body[at] = byte
    try:
        message = Message.FromString(bytes(body))
    except DecodeError:
        return
    batch = normalise_points(message.SerializeToString(), now_unix_ns)
    assert batch.accepted + batch.skipped.total() + batch.refused.total() == _points(message)
    for sample in batch.samples:
        for name in sample.__dataclass_fields__:
            value = getattr(sample, name)
            if name != "step_model_r_squared":
                assert not isinstance(value, int) or 0 <= value < 2**63
                assert not isinstance(value, float) or 0 <= value <= MAX_NUMBER


def test_drops_add_up_over_their_reasons(metrics_message: Factory, now_unix_ns: int) -> None:
    """Spans that the collector rejected because they had no credentials do not count as dropped."""
    message = metrics_message()
    points = _metric(message, names.SPANS_DROPPED).sum.data_points
    for reason, count in (("refused", 5), ("too_large", 2), (names.UNAUTHENTICATED, 1000)):
        other = points.add()
        other.CopyFrom(points[0])
        other.as_int = count
        other.attributes.append(
            KeyValue(key=names.DROP_REASON, value=AnyValue(string_value=reason))
        )
    [sample] = normalise_points(message.SerializeToString(), now_unix_ns).samples
    assert sample.spans_dropped_total == 7
