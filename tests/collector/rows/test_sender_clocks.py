from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.drop_reasons import Refusal
from collector.normalise.batch import NormalisedBatch
from collector.normalise.engine_points import normalise_points
from collector.normalise.spans import normalise_spans
from collector.rows.age_limit import AgeLimit
from collector.rows.sender_clocks import MAX_SOURCES, OTHER, SILENT_NS, UNNAMED, SenderClocks
from telemetry.corroborated_time import CorroboratedClock
from telemetry.engines import EngineSample
from telemetry.request_rows import RequestRows
from telemetry.requests import Basis, Outcome, RequestTimeline, Source
from tests.cache_spans import CALL, message, span

SECOND_NS = 10**9
NOW_UNIX_NS = 1_790_000_000 * SECOND_NS


def request(ended_s: float, replica: str | None = "a") -> RequestTimeline:
    """Return a request of 2 s that ended `ended_s` seconds after now, by its sender's clock."""
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
    """Return a sample of `at_s` seconds after now; its totals began a minute earlier."""
    at_unix_ns = NOW_UNIX_NS + int(at_s * 1e9)
    return EngineSample(
        replica="a",
        engine=0,
        process=1,
        at_unix_ns=at_unix_ns,
        started_unix_ns=at_unix_ns - 60 * SECOND_NS,
    )


def arrives(
    clocks: SenderClocks, *rows: RequestTimeline, after_s: float = 0
) -> list[RequestTimeline]:
    """Return the accepted rows of a message that arrives `after_s` seconds after now."""
    batch = NormalisedBatch(requests=RequestRows.of(rows))
    clocks(batch, NOW_UNIX_NS + int(after_s * 1e9))
    return list(batch.requests)


@pytest.mark.parametrize("ended_s", [-3600.0, -0.1, 0.9])
def test_a_time_before_arrival_is_unchanged(ended_s: float) -> None:
    (kept,) = arrives(SenderClocks(), request(ended_s))
    assert kept == request(ended_s)
    assert kept.clock_ahead_s is None


def test_a_future_time_is_corrected_by_a_recorded_amount() -> None:
    """The row stores the correction, so the original time can be restored."""
    sent = request(42.0)
    (kept,) = arrives(SenderClocks(), sent)
    assert kept.clock_ahead_s == 42.0
    assert kept.received_unix_ns == sent.received_unix_ns - 42 * SECOND_NS
    assert kept.e2e_s == sent.e2e_s


def test_all_rows_of_a_fast_sender_get_the_same_correction() -> None:
    """The correction starts after three messages with the same error."""
    clocks = SenderClocks()
    for number in range(3):
        batch = NormalisedBatch(
            requests=RequestRows.of(
                [replace(request(end), span_id=f"{number}{end}") for end in (42.0, 12.0, -5.0)]
            ),
            samples=[sample(41.5 + number / 100)],
        )
        clocks(batch, NOW_UNIX_NS)
        last = 42.0 if number == 2 else None
        assert [row.clock_ahead_s for row in batch.requests] == [42.0, 42.0, last]
    (kept,) = batch.samples
    assert kept.clock_ahead_s == 42.0
    assert kept.at_unix_ns == sample(-0.48).at_unix_ns
    assert kept.started_unix_ns == sample(-0.48).started_unix_ns
    (source,) = clocks.report()
    assert (source.name, source.lead_s, source.ahead_s, source.rows) == ("a", 42.0, 42.0, 10)


def test_the_measured_lead_is_passed_to_the_store() -> None:
    """A clock that is far ahead is corrected at once. A clock that is slightly ahead is corrected
    after three messages."""
    clocks, found = SenderClocks(), []
    for leads in ((0.7, 0.4), (0.6, 0.3), (0.8, -0.1)):
        batch = NormalisedBatch(samples=[replace(sample(leads[0]), replica="b"), sample(leads[1])])
        clocks(batch, NOW_UNIX_NS)
        found.append(batch.leads_ns)
    assert found == [{"b": 700_000_000}, {"b": 700_000_000}, {"b": 700_000_000, "a": 300_000_000}]


def test_the_first_broken_span_of_a_sender_moves_no_other_row() -> None:
    clocks = SenderClocks()
    good = [request(-0.1 * number) for number in range(10)]
    broken, *kept = arrives(clocks, request(5 * 3600.0), *good)
    assert broken.clock_ahead_s == 5 * 3600.0
    assert kept == good
    assert arrives(SenderClocks(), request(5 * 3600.0))[0].clock_ahead_s == 5 * 3600.0
    assert arrives(clocks, *good) == good


@pytest.mark.parametrize("broken_s", [1.5, 42.0, 80_000.0])
@pytest.mark.parametrize("replica", [None, "a"])
def test_a_clients_clock_is_not_corrected(broken_s: float, replica: str | None) -> None:
    clocks = SenderClocks()
    broken = replace(request(broken_s, replica), basis=Basis.CLIENT, source=Source.CLIENT)
    good = [request(-0.1 * number, place) for number in range(5) for place in (None, "a")]
    for _ in range(20):
        flagged, *kept = arrives(clocks, broken, *good)
        assert flagged.clock_ahead_s == broken_s
        assert kept == good


def test_samples_ahead_of_the_other_samples_are_refused() -> None:
    """If each sample were corrected separately, all samples would have the same time."""
    batch = NormalisedBatch(
        samples=[sample(-0.2), sample(-0.1), sample(5000.0), sample(5001.0)],
        sample_points=[3, 3, 4, 5],
        accepted=15,
    )
    SenderClocks()(batch, NOW_UNIX_NS)
    assert batch.samples == [sample(-0.2), sample(-0.1)]
    assert batch.sample_points == [3, 3]
    assert (batch.accepted, batch.refused) == (6, {Refusal.IN_THE_FUTURE: 9})


def test_invented_names_do_not_evict_a_senders_clock() -> None:
    clocks = SenderClocks()
    for after_s in range(4):
        arrives(clocks, request(after_s + 42.0, "real"), after_s=after_s)
    for number in range(2 * MAX_SOURCES):
        (kept,) = arrives(clocks, request(42.0, f"made-up-{number}"))
        assert kept.clock_ahead_s == 42.0
    assert clocks.overflows == MAX_SOURCES + 1
    (kept,) = arrives(clocks, request(-5.0, "real"))
    assert kept.clock_ahead_s == 42.0
    assert OTHER in [source.name for source in clocks.report()]


@pytest.mark.parametrize("jump_s", [8 * 86_400.0, -8 * 86_400.0, 1800.0, -1800.0])
def test_a_jump_of_our_own_clock_moves_no_senders_rows(jump_s: float) -> None:
    jump_ns, world = 0, 0
    own = CorroboratedClock(lambda: NOW_UNIX_NS + world + jump_ns, lambda: world)
    clocks = SenderClocks(own)
    for after_s in range(10):
        world = after_s * SECOND_NS
        jumped_s = jump_s if 3 <= after_s < 7 else 0.0
        jump_ns = int(jumped_s * 1e9)
        batch = NormalisedBatch(
            requests=RequestRows.of([request(after_s - 0.5, "elsewhere"), request(after_s, None)]),
            samples=[replace(sample(after_s + jumped_s - 0.5), replica="here")],
        )
        clocks(batch, own())
        assert list(batch.requests) == [request(after_s - 0.5, "elsewhere"), request(after_s, None)]
        (kept,) = batch.samples
        assert kept.at_unix_ns == sample(after_s - 0.5).at_unix_ns
        assert kept.clock_ahead_s == (jumped_s or None)


def test_a_repeated_row_is_corrected_as_the_first_time() -> None:
    """The time is part of the key, so a different correction would create a second row."""
    clocks = SenderClocks()
    first = arrives(clocks, request(42.0), request(12.0))
    # Between the two messages, the sender's clock is first further ahead and then right again.
    for lead_s in (60.0, 60.0, 60.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0):
        arrives(clocks, request(lead_s))
        assert arrives(clocks, request(42.0), request(12.0), after_s=1.5) == first


def test_the_number_of_remembered_corrections_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.rows.sender_clocks.MAX_REPEATS", 3)
    clocks = SenderClocks()
    arrives(clocks, *(request(42.0 + place) for place in range(50)))
    assert len(clocks._set_back) == 3


def test_other_senders_are_unchanged() -> None:
    fast, right = arrives(SenderClocks(), request(42.0, "a"), request(-1.0, "b"))
    assert fast.clock_ahead_s == 42.0
    assert right == request(-1.0, "b")


def test_a_correction_stays_while_it_is_approximately_right() -> None:
    """With another correction, the totals would have another start time."""
    clocks = SenderClocks()
    sent = [
        arrives(clocks, request(after + 42.0 - wait), after_s=after)[0].clock_ahead_s
        for after, wait in enumerate((0.0, 0.8, 0.1, 0.5, 0.9, 0.3))
    ]
    assert sent == [42.0] * 6


def test_one_broken_span_does_not_move_its_senders_clock() -> None:
    """The correction is the median over several messages."""
    clocks = SenderClocks()
    for after_s in range(5):
        arrives(clocks, request(after_s - 0.2), after_s=after_s)
    broken, sound = arrives(clocks, request(5000.0), request(5.0), after_s=6)
    assert broken.clock_ahead_s == 4994.0
    assert sound == request(5.0)
    (source,) = clocks.report()
    assert source.ahead_s == 0
    assert source.rows == 1


def test_a_message_that_was_late_does_not_hide_a_fast_clock() -> None:
    """An exporter that retries sends old times."""
    clocks = SenderClocks()
    for after_s in range(5):
        arrives(clocks, request(after_s + 42.0), after_s=after_s)
    (kept,) = arrives(clocks, request(5.0), after_s=6)
    assert kept.clock_ahead_s == 42.0


def test_a_corrected_clock_is_no_longer_corrected() -> None:
    clocks = SenderClocks()
    for after_s in range(5):
        arrives(clocks, request(after_s + 42.0), after_s=after_s)
    for after_s in range(5, 25):
        (kept,) = arrives(clocks, request(after_s - 0.2), after_s=after_s)
    assert kept.clock_ahead_s is None


def test_senders_without_a_name_are_judged_by_each_message() -> None:
    """Rows without a sender's name may come from clients with different clocks."""
    clocks = SenderClocks()
    (fast,) = arrives(clocks, request(42.0, None))
    (right,) = arrives(clocks, request(-1.0, None))
    assert (fast.clock_ahead_s, right.clock_ahead_s) == (42.0, None)
    assert [source.name for source in clocks.report()] == [UNNAMED]


def test_a_slow_clock_is_reported_and_not_corrected() -> None:
    """A queue in front of the collector looks like a slow clock."""
    clocks = SenderClocks()
    (kept,) = arrives(clocks, request(-90.0))
    assert kept == request(-90.0)
    (source,) = clocks.report()
    assert (source.lead_s, source.ahead_s) == (-90.0, 0)


def test_a_silent_sender_is_forgotten() -> None:
    clocks = SenderClocks()
    for number in range(MAX_SOURCES):
        arrives(clocks, request(-1.0, f"replica-{number}"))
    assert len(clocks.report()) == MAX_SOURCES
    arrives(clocks, request(-1.0, "last"), after_s=SILENT_NS / 1e9 + 1)
    assert [source.name for source in clocks.report()] == ["last"]


@given(st.lists(st.lists(st.floats(-1e5, 8e4), min_size=1, max_size=5), max_size=30))
def test_no_stored_row_ends_after_its_arrival(messages: list[list[float]]) -> None:
    clocks = SenderClocks()
    for ends in messages:
        for kept in arrives(clocks, *(request(end) for end in ends)):
            assert kept.received_unix_ns + 2 * SECOND_NS <= NOW_UNIX_NS + SECOND_NS + 1000
            assert kept.clock_ahead_s is None or kept.clock_ahead_s > 0


def test_real_messages_are_set_back(
    trace_message: Callable[..., ExportTraceServiceRequest],
    metrics_message: Callable[..., ExportMetricsServiceRequest],
) -> None:
    offset: dict[str, Any] = {"wall_offset_ns": NOW_UNIX_NS + 3600 * SECOND_NS - 200 * SECOND_NS}
    clocks = SenderClocks()
    spans = normalise_spans(trace_message(**offset).SerializeToString(), NOW_UNIX_NS)
    points = normalise_points(metrics_message().SerializeToString(), NOW_UNIX_NS)
    clocks(spans, NOW_UNIX_NS)
    clocks(points, NOW_UNIX_NS - 3600 * SECOND_NS)
    assert spans.requests[0].clock_ahead_s == pytest.approx(3501.5)
    assert points.samples[0].clock_ahead_s == 3600.0


def test_a_lookup_is_corrected_like_the_request_of_the_same_span() -> None:
    """A hit is matched by the call's ids and time, so the corrections must be equal."""
    ahead_ns = 40 * SECOND_NS
    clocks = SenderClocks()
    for number in range(1, 6):
        miss = {**CALL, "gen_ai.cache.hit": False}
        spans = [span(number, miss, at_unix_ns=NOW_UNIX_NS + ahead_ns, duration_s=1.0)]
        batch = normalise_spans(message(*spans).SerializeToString(), NOW_UNIX_NS)
        clocks(batch, NOW_UNIX_NS + SECOND_NS)
        [request], [lookup] = batch.requests, batch.lookups
        assert lookup.at_unix_ns == request.received_unix_ns == NOW_UNIX_NS
        assert lookup.clock_ahead_s == request.clock_ahead_s == 40.0


def test_a_span_that_is_refused_counts_once() -> None:
    """One span may be both a request and a lookup."""
    miss = {**CALL, "gen_ai.cache.hit": False}
    hit = {**CALL, "gen_ai.cache.hit": True}
    spans = [span(each, at, at_unix_ns=NOW_UNIX_NS) for each, at in ((1, miss), (2, hit))]
    batch = normalise_spans(message(*spans).SerializeToString(), NOW_UNIX_NS)
    assert batch.accepted == 2
    AgeLimit(SECOND_NS)(batch, NOW_UNIX_NS + 600 * SECOND_NS)
    assert (batch.accepted, batch.refused) == (0, {Refusal.TOO_OLD: 2})
    assert batch.empty
