"""A sender whose clock is ahead shows it by what it tells, and is set right."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.clocks import MOST_SOURCES, SILENT_NS, UNNAMED, Clocks
from collector.normalise.batch import Batch
from collector.normalise.points import normalise_points
from collector.normalise.spans import normalise_spans
from telemetry.engines import EngineSample
from telemetry.request_rows import RequestRows
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

SECOND_NS = 10**9
NOW_UNIX_NS = 1_790_000_000 * SECOND_NS


def request(ended_s: float, replica: str | None = "a") -> RequestTimeline:
    """One that took 2 s, and ended so long after now by the clock of its sender."""
    return RequestTimeline(
        trace_id="1" * 32,
        span_id="2" * 16,
        request_id=None,
        received_unix_ns=NOW_UNIX_NS + int((ended_s - 2) * 1e9),
        e2e_s=2.0,
        outcome=Outcome.STOP,
        source=Source.NATIVE,
        basis=Basis.ENGINE,
        replica=replica,
    )


def sample(at_s: float) -> EngineSample:
    """One of so long after now; it counts since a minute before."""
    at_unix_ns = NOW_UNIX_NS + int(at_s * 1e9)
    return EngineSample(
        replica="a",
        engine=0,
        process=1,
        at_unix_ns=at_unix_ns,
        started_unix_ns=at_unix_ns - 60 * SECOND_NS,
    )


def arrives(clocks: Clocks, *rows: RequestTimeline, after_s: float = 0) -> list[RequestTimeline]:
    """What is kept of a message that comes so long after now."""
    batch = Batch(requests=RequestRows.of(rows))
    clocks(batch, NOW_UNIX_NS + int(after_s * 1e9))
    return list(batch.requests)


@pytest.mark.parametrize("ended_s", [-3600.0, -0.1, 0.9])
def test_what_was_before_it_came_is_left_as_it_was_told(ended_s: float) -> None:
    """However late it comes, and within the tolerance."""
    (kept,) = arrives(Clocks(), request(ended_s))
    assert kept == request(ended_s)
    assert kept.clock_ahead_s is None


def test_what_has_not_been_yet_is_set_back_and_says_by_how_much() -> None:
    """What was told can be had back: nothing is lost."""
    told = request(42.0)
    (kept,) = arrives(Clocks(), told)
    assert kept.clock_ahead_s == 42.0
    assert kept.received_unix_ns == told.received_unix_ns - 42 * SECOND_NS
    assert kept.e2e_s == told.e2e_s


def test_all_that_a_fast_sender_tells_is_set_back_by_the_same() -> None:
    """Also what is not contradicted by itself; its samples with it, and since when they count."""
    batch = Batch(
        requests=RequestRows.of([request(42.0), request(12.0), request(-5.0)]),
        samples=[sample(41.5)],
    )
    clocks = Clocks()
    clocks(batch, NOW_UNIX_NS)
    assert [row.clock_ahead_s for row in batch.requests] == [42.0] * 3
    (kept,) = batch.samples
    assert kept.clock_ahead_s == 42.0
    assert kept.at_unix_ns == sample(-0.5).at_unix_ns
    assert kept.started_unix_ns == sample(-0.5).started_unix_ns
    (source,) = clocks.report()
    assert (source.name, source.lead_s, source.ahead_s, source.rows) == ("a", 42.0, 42.0, 4)


def test_what_is_told_again_is_kept_as_it_was_the_first_time() -> None:
    """Its key has an instant: set back by another amount it would be a row of its own."""
    clocks = Clocks()
    first = arrives(clocks, request(42.0), request(12.0))
    # Meanwhile its sender is seen to be further ahead, or right again.
    for lead_s in (60.0, 60.0, 60.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0):
        arrives(clocks, request(lead_s))
        assert arrives(clocks, request(42.0), request(12.0), after_s=1.5) == first


def test_what_was_set_back_is_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet with a fast clock must not fill the memory."""
    monkeypatch.setattr("collector.clocks.MOST_REPEATS", 3)
    clocks = Clocks()
    arrives(clocks, *(request(42.0 + place) for place in range(50)))
    assert len(clocks._set_back) == 3


def test_others_are_left_alone() -> None:
    """One clock is one sender's."""
    fast, right = arrives(Clocks(), request(42.0, "a"), request(-1.0, "b"))
    assert fast.clock_ahead_s == 42.0
    assert right == request(-1.0, "b")


def test_the_amount_stays_while_it_is_about_right() -> None:
    """Samples count since an instant: were it another each time, it would be another count."""
    clocks = Clocks()
    told = [
        arrives(clocks, request(after + 42.0 - wait), after_s=after)[0].clock_ahead_s
        for after, wait in enumerate((0.0, 0.8, 0.1, 0.5, 0.9, 0.3))
    ]
    assert told == [42.0] * 6


def test_one_broken_span_does_not_move_its_senders_clock() -> None:
    """It is set right by itself; the middle of what was heard counts."""
    clocks = Clocks()
    for after_s in range(5):
        arrives(clocks, request(after_s - 0.2), after_s=after_s)
    broken, sound = arrives(clocks, request(5000.0), request(5.0), after_s=6)
    assert broken.clock_ahead_s == 4994.0
    assert sound == request(5.0)
    (source,) = clocks.report()
    assert source.ahead_s == 0
    assert source.rows == 1


def test_a_message_that_was_late_does_not_hide_a_fast_clock() -> None:
    """An exporter that sends again tells of before."""
    clocks = Clocks()
    for after_s in range(5):
        arrives(clocks, request(after_s + 42.0), after_s=after_s)
    (kept,) = arrives(clocks, request(5.0), after_s=6)
    assert kept.clock_ahead_s == 42.0


def test_a_clock_that_was_set_is_left_alone_again() -> None:
    """Once most of what is remembered says so."""
    clocks = Clocks()
    for after_s in range(5):
        arrives(clocks, request(after_s + 42.0), after_s=after_s)
    for after_s in range(5, 25):
        (kept,) = arrives(clocks, request(after_s - 0.2), after_s=after_s)
    assert kept.clock_ahead_s is None


def test_who_gives_no_name_is_judged_by_each_message() -> None:
    """Clients are many clocks."""
    clocks = Clocks()
    (fast,) = arrives(clocks, request(42.0, None))
    (right,) = arrives(clocks, request(-1.0, None))
    assert (fast.clock_ahead_s, right.clock_ahead_s) == (42.0, None)
    assert [source.name for source in clocks.report()] == [UNNAMED]


def test_a_clock_that_is_behind_is_told_and_not_mended() -> None:
    """It might as well be a queue on the way."""
    clocks = Clocks()
    (kept,) = arrives(clocks, request(-90.0))
    assert kept == request(-90.0)
    (source,) = clocks.report()
    assert (source.lead_s, source.ahead_s) == (-90.0, 0)


def test_who_was_not_heard_for_long_is_not_told_of() -> None:
    """And who makes up names fills no memory."""
    clocks = Clocks()
    for number in range(MOST_SOURCES + 10):
        arrives(clocks, request(-1.0, f"replica-{number}"))
    assert len(clocks.report()) == MOST_SOURCES
    arrives(clocks, request(-1.0, "last"), after_s=SILENT_NS / 1e9 + 1)
    assert [source.name for source in clocks.report()] == ["last"]


@given(st.lists(st.lists(st.floats(-1e5, 8e4), min_size=1, max_size=5), max_size=30))
def test_nothing_is_kept_that_ends_after_it_came(messages: list[list[float]]) -> None:
    """Whatever is told: by more than the tolerance, no kept instant is in the future."""
    clocks = Clocks()
    for ends in messages:
        for kept in arrives(clocks, *(request(end) for end in ends)):
            assert kept.received_unix_ns + 2 * SECOND_NS <= NOW_UNIX_NS + SECOND_NS + 1000
            assert kept.clock_ahead_s is None or kept.clock_ahead_s > 0


def test_real_messages_are_set_back(
    trace_message: Callable[..., ExportTraceServiceRequest],
    metrics_message: Callable[..., ExportMetricsServiceRequest],
) -> None:
    """The instrumentation's spans and samples, an hour ahead."""
    offset: dict[str, Any] = {"wall_offset_ns": NOW_UNIX_NS + 3600 * SECOND_NS - 200 * SECOND_NS}
    clocks = Clocks()
    spans = normalise_spans(trace_message(**offset).SerializeToString(), NOW_UNIX_NS)
    points = normalise_points(metrics_message().SerializeToString(), NOW_UNIX_NS)
    clocks(spans, NOW_UNIX_NS)
    clocks(points, NOW_UNIX_NS - 3600 * SECOND_NS)
    assert spans.requests[0].clock_ahead_s == pytest.approx(3501.5)
    assert points.samples[0].clock_ahead_s == 3600.0
