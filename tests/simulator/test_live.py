import threading
from itertools import pairwise

import pytest
from tailspan_vllm import names

from simulator import start_parts
from simulator.fleet import FleetConfig
from simulator.live import SPANS_PER_BATCH, SimulationPlan, run
from simulator.workload import Workload

START_NS = 1_700_000_000_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = START_NS
        self.waited_s: list[float] = []

    def __call__(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> None:
        self.waited_s.append(seconds)
        self.now_ns += round(seconds * 1e9)


def _plan(endpoint: str, backfill_s: float, duration_s: float | None) -> SimulationPlan:
    return SimulationPlan(
        endpoint=endpoint,
        fleet=FleetConfig(workload=Workload(rate_per_s=10.0)),
        backfill_s=backfill_s,
        duration_s=duration_s,
    )


def _run(plan: SimulationPlan, clock: Clock):  # type: ignore[no-untyped-def]
    messages: list[str] = []
    sent = run(plan, threading.Event(), messages.append, clock_ns=clock, wait=clock.wait)
    return sent, messages


def _batches(collector, start: bool = False):  # type: ignore[no-untyped-def]
    """Return the spans of each message: spans of requests, or of starts with `start`."""
    found = [
        [
            span
            for of in message.resource_spans
            for scoped in of.scope_spans
            for span in scoped.spans
            if (span.name == names.START) == start
        ]
        for message in collector.traces
    ]
    return [batch for batch in found if batch]


def test_each_replicas_start_is_sent_once(collector) -> None:  # type: ignore[no-untyped-def]
    _run(_plan(collector.url, 10.0, 5.0), Clock())
    starts = [span for batch in _batches(collector, start=True) for span in batch]
    assert len(starts) == len({span.span_id for span in starts}) == 2
    for span in starts:
        seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        parts = [
            pair.value.double_value for pair in span.attributes if pair.key in start_parts.SHARES
        ]
        assert len(parts) == len(start_parts.SHARES)
        assert sum(parts) == pytest.approx(seconds) == pytest.approx(start_parts.FIRST_S)
        assert span.end_time_unix_nano == START_NS - 10 * 10**9


def test_the_past_arrives_at_once_and_the_present_second_by_second(collector) -> None:  # type: ignore[no-untyped-def]
    clock = Clock()
    sent, messages = _run(_plan(collector.url, 120.0, 10.0), clock)
    batches = _batches(collector)
    spans = [span for batch in batches for span in batch]
    assert len(spans) == sent.requests
    assert sent.dropped_requests == sent.dropped_samples == 0
    assert max(len(batch) for batch in batches) <= SPANS_PER_BATCH
    assert len(batches[0]) == SPANS_PER_BATCH
    ends = [
        (min(s.end_time_unix_nano for s in b), max(s.end_time_unix_nano for s in b))
        for b in batches
    ]
    assert all(one[1] <= other[0] for one, other in pairwise(ends))
    assert len({span.span_id for span in spans}) == len(spans)
    assert min(span.start_time_unix_nano for span in spans) >= START_NS - 120 * 10**9
    # The sender waits once per second until the last request has ended.
    assert len(clock.waited_s) >= 10
    assert all(0 < seconds <= 1.0 for seconds in clock.waited_s)
    assert any("now live" in line for line in messages)
    assert messages[-1] == (
        f"sent {sent.requests} requests and {sent.samples} samples; all delivered"
    )


def test_every_replica_and_second_has_one_sample_marked_simulated(collector) -> None:  # type: ignore[no-untyped-def]
    sent, _ = _run(_plan(collector.url, 60.0, 0.0), Clock())
    seen = []
    for export in collector.metrics:
        for of in export.resource_metrics:
            resource = {a.key: a.value for a in of.resource.attributes}
            assert resource[names.SIMULATED].bool_value
            assert resource[names.SERVICE_NAME].string_value == "vllm"
            assert resource[names.CLOUD_REGION].string_value in ("eu-west-1", "us-east-1")
            assert resource[names.PROCESS_PID].int_value > 0
            if any(m.name in names.GPU_UNITS for s in of.scope_metrics for m in s.metrics):
                continue
            (waiting,) = (m for s in of.scope_metrics for m in s.metrics if m.name == names.WAITING)
            replica = resource[names.SERVICE_INSTANCE_ID].string_value
            seen += [(replica, point.time_unix_nano) for point in waiting.gauge.data_points]
    assert len(set(seen)) == len(seen)
    for replica in ("sim-0", "sim-1"):
        instants = [at for name, at in seen if name == replica]
        assert instants == sorted(instants)
    assert 2 * len(seen) == sent.samples  # each engine sample has one GPU sample
    assert len(seen) >= 2 * 60


def test_a_stop_ends_the_run_and_sends_the_queued_data(collector) -> None:  # type: ignore[no-untyped-def]
    clock, stop = Clock(), threading.Event()

    def wait(seconds: float) -> None:
        clock.wait(seconds)
        if len(clock.waited_s) == 5:
            stop.set()

    sent = run(_plan(collector.url, 0.0, None), stop, lambda _: None, clock_ns=clock, wait=wait)
    assert sent.samples == 2 * 5 * 2  # one engine and one GPU per replica
    assert sent.requests == sum(map(len, _batches(collector)))


def test_a_collector_that_refuses_at_first_gets_everything(collector) -> None:  # type: ignore[no-untyped-def]
    collector.refusals = [503, 503, 503]
    sent, _ = _run(_plan(collector.url, 30.0, 0.0), Clock())
    assert collector.refused == 3
    assert sent.requests > 0
    assert sent.dropped_requests == sent.dropped_samples == 0


@pytest.mark.parametrize(
    ("key", "plan"),
    [
        ("endpoint", lambda: _plan("localhost:4318", 60.0, None)),
        ("endpoint", lambda: _plan("ftp://localhost", 60.0, None)),
        ("backfill_s", lambda: _plan("http://localhost", -1.0, None)),
        ("duration_s", lambda: _plan("http://localhost", 0.0, 0.0)),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(key: str, plan) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=f"{key}: .*allowed: "):
        plan()
