from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from collector.drop_reasons import Refusal
from collector.normalise.batch import NormalisedBatch
from collector.normalise.engine_points import normalise_points
from collector.normalise.spans import normalise_spans
from collector.rows.age_limit import MINUTE_NS, AgeLimit
from collector.rows.sender_clocks import SenderClocks
from telemetry.request_rows import RequestRows
from telemetry.requests import RequestTimeline
from tests.collector.rows.test_sender_clocks import NOW_UNIX_NS, SECOND_NS, request

DAY_NS = 86_400 * SECOND_NS


def aged(ago_ns: int) -> RequestTimeline:
    return replace(request(0.0), received_unix_ns=NOW_UNIX_NS - ago_ns)


def test_only_rows_beyond_the_retention_are_refused() -> None:
    batch = NormalisedBatch(
        requests=RequestRows.of([aged(9 * DAY_NS), aged(6 * DAY_NS), aged(8 * DAY_NS)]), accepted=3
    )
    AgeLimit(7 * DAY_NS)(batch, NOW_UNIX_NS)
    assert list(batch.requests) == [aged(6 * DAY_NS)]
    assert (batch.accepted, batch.refused) == (1, {Refusal.TOO_OLD: 2})
    assert batch.complaint == ("2 too_old (up to 9 days old; rows older than 7 days are not kept)")


def test_unlimited_retention_accepts_any_age() -> None:
    batch = NormalisedBatch(requests=RequestRows.of([aged(900 * DAY_NS)]), accepted=1)
    AgeLimit(None)(batch, NOW_UNIX_NS)
    assert len(batch.requests) == 1


@given(st.integers(0, 2 * DAY_NS))
def test_a_minute_whose_rows_are_going_is_not_opened_again(ago_ns: int) -> None:
    """The deletion of a minute's first row closes the minute's rollup."""
    batch = NormalisedBatch(requests=RequestRows.of([aged(ago_ns)]), accepted=1)
    AgeLimit(DAY_NS)(batch, NOW_UNIX_NS)
    minute = aged(ago_ns).received_unix_ns // MINUTE_NS * MINUTE_NS
    assert bool(batch.requests) == (minute >= NOW_UNIX_NS - DAY_NS)


def test_each_point_of_a_sample_counts(metrics: Callable[..., Any]) -> None:
    """OTLP counts refused data points, but all points of one instant are one sample."""
    message = encode_metrics(metrics()).SerializeToString()
    batch = normalise_points(message, NOW_UNIX_NS)
    points = batch.accepted
    assert points > 1
    AgeLimit(DAY_NS)(batch, NOW_UNIX_NS + 2 * DAY_NS)
    assert batch.empty
    assert (batch.accepted, batch.refused) == (0, {Refusal.TOO_OLD: points})


def test_the_age_limit_follows_the_deletion() -> None:
    """If the clock is ahead, no row is deleted at first, so no row may be refused."""
    batch = NormalisedBatch(
        requests=RequestRows.of([aged(8 * DAY_NS), aged(6 * DAY_NS)]), accepted=2
    )
    AgeLimit(7 * DAY_NS, lambda: NOW_UNIX_NS - 8 * DAY_NS)(batch, NOW_UNIX_NS)
    assert batch.accepted == 2
    AgeLimit(7 * DAY_NS, lambda: NOW_UNIX_NS)(batch, NOW_UNIX_NS)
    assert list(batch.requests) == [aged(6 * DAY_NS)]


def test_the_far_future_is_refused_with_the_limit(span: Callable[..., Any]) -> None:
    """A clock that is a day ahead cannot be corrected."""
    ahead = span(wall_offset_ns=NOW_UNIX_NS + 2 * DAY_NS)
    batch = normalise_spans(encode_spans([ahead]).SerializeToString(), NOW_UNIX_NS)
    SenderClocks()(batch, NOW_UNIX_NS)
    assert batch.complaint == "1 in_the_future (more than a day ahead of the collector's clock)"
