import math
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags, Metric
from tailspan_vllm import names

from collector.drop_reasons import Skip
from collector.normalise.batch import NormalisedBatch
from collector.normalise.engine_points import FIELDS, normalise_points
from collector.normalise.known_layouts import MAX_FORMS, KnownLayouts
from collector.normalise.layout_learning import learn
from collector.normalise.number_positions import numbers_in
from collector.normalise.otlp_envelope import MAX_PARTS, encoded_scopes
from tests.collector.normalise.metric_messages import (
    GAUGES,
    NOW_UNIX_NS,
    SECOND_NS,
    STARTED_UNIX_NS,
    TOTALS,
    engine_message,
    gpu_message,
)

Message = ExportMetricsServiceRequest


def _layouts_of(*bodies: bytes) -> KnownLayouts:
    layouts = KnownLayouts()
    for body in bodies:
        layouts.add(learn(body, NOW_UNIX_NS))
    return layouts


def _values(batch: NormalisedBatch) -> str:
    """Return the rows and counts as text, in which 1 and 1.0 differ."""
    counts = batch.accepted, batch.skipped, batch.refused, batch.truncated_texts
    return repr((batch.samples, batch.sample_points, batch.gpus, batch.gpu_points, counts))


def _read(layouts: KnownLayouts, body: bytes) -> NormalisedBatch:
    batch = layouts.read(body, NOW_UNIX_NS)
    assert batch is not None
    return batch


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(engine_message, id="an engine"),
        pytest.param(lambda second: engine_message(second, engines=4), id="four engines"),
        pytest.param(lambda second: engine_message(second, simulated=True), id="a simulated one"),
        pytest.param(gpu_message, id="GPUs"),
        pytest.param(
            lambda second: gpu_message(second, gpus=8, throttle_reasons="hw_slowdown,sw_power_cap"),
            id="throttled GPUs",
        ),
        pytest.param(
            lambda second: engine_message(second) + gpu_message(second), id="an engine and GPUs"
        ),
        pytest.param(
            lambda second: engine_message(
                second,
                failures={"record": 2, "join": 5},
                drops={"full": 1, "rejected": 2, names.UNAUTHENTICATED: 40},
            ),
            id="sums of several points",
        ),
    ],
)
def test_a_later_message_gives_the_rows_that_all_its_points_give(
    make: Callable[[int], bytes],
) -> None:
    layouts = _layouts_of(make(0))
    for second in (0, 1, 3_600):
        body = make(second)
        read = _read(layouts, body)
        assert read == normalise_points(body, NOW_UNIX_NS)
        assert _values(read) == _values(normalise_points(body, NOW_UNIX_NS))


def test_a_row_of_a_layout_is_a_row_like_any_other() -> None:
    """The row can be changed for a clock correction, compared, and sent to another process."""
    body = engine_message(1) + gpu_message(1)
    read, other = _read(_layouts_of(body), body), normalise_points(body, NOW_UNIX_NS)
    pairs: list[tuple[Any, Any]] = [
        *zip(read.samples, other.samples, strict=True),
        *zip(read.gpus, other.gpus, strict=True),
    ]
    for row, same in pairs:
        assert hash(row) == hash(same)
        assert pickle.loads(pickle.dumps(row)) == same
        assert replace(row, clock_ahead_s=2.0) == replace(same, clock_ahead_s=2.0)
        with pytest.raises(FrozenInstanceError):
            row.at_unix_ns = 1


_NUMBERS = st.one_of(
    st.floats(),
    st.floats(0, 1),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([math.nan, math.inf, -1.0, 1e30, 1e31, 2.0**63, -0.0, 2**63 - 1]),
)
_INSTANTS = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(NOW_UNIX_NS - 10**10, NOW_UNIX_NS + 2 * 86_400 * SECOND_NS),
    st.just(STARTED_UNIX_NS),
    st.just(NOW_UNIX_NS),
)


@given(st.data())
def test_any_numbers_give_the_rows_that_all_points_give(data: st.DataObject) -> None:
    """A reading by a known layout gives the same rows and counts as a reading point by point, or no
    result."""
    failures = {"record": 2, "join": 5}
    messages = [engine_message(engines=2, failures=failures), gpu_message(gpus=2)]
    body = data.draw(st.sampled_from(messages))
    layouts = _layouts_of(body)
    [(_, scoped, _)] = encoded_scopes(body)
    changed = bytearray(scoped)
    found = numbers_in(scoped)
    for at in data.draw(st.lists(st.sampled_from(found), max_size=4)):
        where = data.draw(st.sampled_from([at.start, at.time, at.value]))
        if where is None:
            continue
        if where == at.value:
            value = data.draw(_NUMBERS)
            as_integer = not at.is_double and isinstance(value, int)
            form = "<q" if as_integer else "<d"
            struct.pack_into(form, changed, where, value)
        else:
            struct.pack_into("<Q", changed, where, data.draw(_INSTANTS))
    other = body.replace(scoped, bytes(changed))
    read = layouts.read(other, NOW_UNIX_NS)
    assert read is None or _values(read) == _values(normalise_points(other, NOW_UNIX_NS))


def test_every_time_of_a_sample_moves_with_it() -> None:
    layouts = _layouts_of(engine_message(0, engines=2))
    for later_ns in (SECOND_NS, 86_399 * SECOND_NS):
        body = engine_message(later_ns // SECOND_NS, engines=2, started_unix_ns=NOW_UNIX_NS)
        read = _read(layouts, body)
        assert {row.at_unix_ns for row in read.samples} == {NOW_UNIX_NS + later_ns}
        assert {row.started_unix_ns for row in read.samples} == {NOW_UNIX_NS}


def test_replicas_share_a_layout() -> None:
    layouts = _layouts_of(*(engine_message(replica=f"replica-{count}") for count in range(3)))
    assert len(layouts) == 1
    body = engine_message(1, replica="a-new-replica-with-another-length")
    assert [row.replica for row in _read(layouts, body).samples] == [
        "a-new-replica-with-another-length"
    ]


def test_a_simulated_sender_does_not_use_the_layout_of_a_real_one() -> None:
    layouts = _layouts_of(engine_message())
    assert layouts.read(engine_message(simulated=True), NOW_UNIX_NS) is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(engine_message(replica=None), id="no replica"),
        pytest.param(engine_message(engines=2), id="another number of engines"),
        pytest.param(engine_message(2 * 86_400), id="far in the future"),
        pytest.param(engine_message(gauges={**GAUGES, names.KV_USAGE: 1.5}), id="out of range"),
        pytest.param(engine_message(gauges={**GAUGES, names.KV_USAGE: math.nan}), id="NaN"),
        pytest.param(engine_message(totals={**TOTALS, names.BUSY_TIME: math.inf}), id="infinite"),
        pytest.param(engine_message(totals={**TOTALS, names.STEPS: -1}), id="negative"),
        pytest.param(engine_message(started_unix_ns=NOW_UNIX_NS + 1), id="ends before its start"),
        pytest.param(engine_message() * 2, id="the same sample twice"),
        pytest.param(engine_message() + gpu_message(), id="also an unknown scope"),
        pytest.param(engine_message() * (MAX_PARTS // 40), id="too many points"),
    ],
)
def test_an_invalid_or_unknown_message_has_no_result(body: bytes) -> None:
    """The reader that uses layouts refuses no item. Only the point-by-point reader counts
    refusals."""
    assert _layouts_of(engine_message()).read(body, NOW_UNIX_NS) is None


def test_an_integer_in_a_field_of_seconds_becomes_a_float() -> None:
    totals = {**TOTALS, names.BUSY_TIME: 0}
    [sample] = _read(
        _layouts_of(engine_message(totals=totals)), engine_message(7, totals=totals)
    ).samples
    assert repr(sample.busy_s_total) == "7.0"


@pytest.mark.parametrize("name", [names.MODELLED_FLOPS, names.MODELLED_READ_BYTES])
def test_a_total_that_is_no_count_may_exceed_the_largest_integer(name: str) -> None:
    """A GPU that computes 4e14 FLOP/s exceeds 2⁶³ after 6.4 hours."""
    layouts = _layouts_of(engine_message(totals={**TOTALS, name: 2.0**63}))
    for total in (1e19, 3e27):
        body = engine_message(1, totals={**TOTALS, name: total})
        for batch in (_read(layouts, body), normalise_points(body, NOW_UNIX_NS)):
            assert getattr(batch.samples[0], FIELDS[name].name) == total


def _changed(body: bytes, change: Callable[[Any], object]) -> bytes:
    message = Message.FromString(body)
    change(message.resource_metrics[0].scope_metrics[0].metrics)
    return message.SerializeToString()


def test_skipped_points_stay_skipped() -> None:
    """An unknown metric and a point without a value are skipped; the other points are read."""

    def newer(metrics: list[Metric]) -> None:
        metrics[0].name = "tailspan.engine.of_a_later_version"
        point = metrics[1].gauge.data_points[0]
        point.flags = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
        point.ClearField("value")

    layouts = _layouts_of(_changed(engine_message(), newer))
    body = _changed(engine_message(5), newer)
    read = _read(layouts, body)
    assert read == normalise_points(body, NOW_UNIX_NS)
    assert read.skipped == {Skip.UNKNOWN_METRIC: 1, Skip.NO_RECORDED_VALUE: 1}


def test_truncated_texts_are_counted_each_time() -> None:
    def long(metrics: list[Metric]) -> None:
        for metric in metrics:
            for point in metric.gauge.data_points:
                for pair in point.attributes:
                    if pair.key == names.CONFIG:
                        pair.value.string_value = "c" * 300

    body = _changed(engine_message(1, replica="r" * 300), long)
    read = _read(_layouts_of(_changed(engine_message(), long)), body)
    assert read.truncated_texts == normalise_points(body, NOW_UNIX_NS).truncated_texts
    assert read.truncated_texts == len(GAUGES) + 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda metrics: metrics[0].ClearField("data"), id="a metric without points"),
        pytest.param(
            lambda metrics: metrics[0].gauge.data_points[0].ClearField("value"), id="no value"
        ),
        pytest.param(lambda metrics: metrics[0].histogram.data_points.add(), id="a histogram"),
        pytest.param(
            lambda metrics: setattr(metrics[0].gauge.data_points[0], "as_double", 3.0),
            id="a count as a float",
        ),
        pytest.param(lambda metrics: metrics.__delitem__(slice(None)), id="no metric"),
    ],
)
def test_an_unusual_message_is_read_point_by_point(
    change: Callable[[Any], object],
) -> None:
    """A reading by a known layout gives the same rows as a reading point by point."""
    layouts = _layouts_of(_changed(engine_message(), change))
    body = _changed(engine_message(1), change)
    read = layouts.read(body, NOW_UNIX_NS)
    assert read is None or read == normalise_points(body, NOW_UNIX_NS)


def test_the_memory_for_layouts_is_limited() -> None:
    layouts = KnownLayouts(max_bytes=200_000)
    bodies = [
        engine_message(gauges={name: 1 if FIELDS[name].quantity == "count" else 0.5})
        for name in GAUGES
    ]
    for body in [*bodies, *(gpu_message(gpus=gpus) for gpus in range(1, 9))]:
        layouts.add(learn(body, NOW_UNIX_NS))
        assert layouts.read(body, NOW_UNIX_NS) is not None
        assert layouts.size_bytes <= 200_000
    assert len(layouts) < 8
    assert layouts.read(bodies[0], NOW_UNIX_NS) is None


def test_the_forms_of_one_length_are_limited() -> None:
    layouts = KnownLayouts()
    bodies = [_moved(count) for count in range(3 * MAX_FORMS)]
    assert len(set(map(len, bodies))) == 1
    for body in bodies:
        layouts.add(learn(body, NOW_UNIX_NS))
        assert layouts.read(body, NOW_UNIX_NS) is not None
    assert len(layouts) == MAX_FORMS


def _moved(count: int) -> bytes:
    """Return a message of fixed length, with unknown text before and after the metric."""

    def moved(metrics: list[Metric]) -> None:
        metrics[0].description = "d" * (10 + count)
        metrics[1].description = "d" * (100 - count)

    only: Mapping[str, float] = {names.WAITING: 1, names.RUNNING: 1}
    return _changed(engine_message(gauges=only, totals={}), moved)


def test_a_size_is_learned_when_it_repeats() -> None:
    layouts = KnownLayouts()
    assert [layouts.missed_before(size) for size in (5, 6, 5, 5, 6, 7)] == [
        *(False, False, True, True, True, False)
    ]
