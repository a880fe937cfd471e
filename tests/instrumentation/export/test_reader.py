import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.engine_core.link import EngineEnd
from tailspan_vllm.engine_core.link_messages import Identity, encode_account, encode_identity
from tailspan_vllm.engine_core.step_ledger import RequestEngineTime
from tailspan_vllm.engine_state.hardware import UNKNOWN
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.export import reader
from tailspan_vllm.export.account_join import AccountJoin
from tailspan_vllm.export.reader import EngineCoreReader
from tailspan_vllm.export.span_queue import Drops, SpanQueue
from tailspan_vllm.otlp.engine_metrics import encode_samples
from tailspan_vllm.request.exchange import Flight
from tailspan_vllm.request.in_flight import InFlight
from tailspan_vllm.request.parts import RequestPhaseParts
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.start_up.instants import EngineInstants, WorkerStart
from tailspan_vllm.start_up.process import START_VARIABLE

from collector.normalise.engine_points import normalise_points

PARTS = RequestPhaseParts(0.1, 0.0, 0.0, 0.0, 0.0)
RESOURCE = Resource({names.SERVICE_INSTANCE_ID: "r", names.PROCESS_PID: 7})
ACCOUNT = RequestEngineTime(1.0, 2.0, 3.0, PARTS, PARTS, 0.02)


@pytest.fixture
def engine() -> Iterator[EngineEnd]:
    end = EngineEnd(_token(), "engine-0")
    yield end
    end.close()


def _token() -> str:
    return f"reading-{os.getpid()}"


READERS: list[EngineCoreReader] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while READERS:
        READERS.pop().close()


class Waiting:
    """A reader whose backlog has a request that has just ended."""

    def __init__(self, **changes: Any) -> None:
        self.drops = Drops()
        self.reader = EngineCoreReader(AccountJoin(_token()), self.drops)
        READERS.append(self.reader)
        self.backlog = SpanQueue(10, self.drops)
        self.changes = changes
        self.backlog.submit(self._record)

    def _record(self) -> RequestRecord:
        record = RequestRecord(
            received=0.5,
            queued=0.6,
            scheduled=1.0,
            first_token=2.0,
            last_token=3.0,
            delivered=3.1,
            wall_offset_ns=0,
            outcome="stop",
            basis="http",
            engine_request_id="one",
            awaits_account=True,
        )
        for name, value in self.changes.items():
            setattr(record, name, value)
        return record

    def complete(self, closing: bool = False) -> list[bytes]:
        self.reader.read_link()
        self.reader.complete([self.backlog], closing)
        return list(self.backlog.spans)


def test_a_request_that_ends_before_the_link_opens_waits_for_its_account() -> None:
    """If the hook of the scheduler's creation fails, the link opens at the first request."""
    waiting = Waiting()
    assert waiting.complete() == []
    engine = EngineEnd(_token(), "engine-0")
    try:
        engine.put(encode_account(0, "one", ACCOUNT))
        waiting.reader.read_link()
        engine.flush()
        deadline = time.monotonic() + 20
        while not (spans := waiting.complete()) and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        engine.close()
    assert names.PREFILL_PARTS[0].encode() in spans[0]


def test_all_engines_are_connected_before_the_search_becomes_rare(engine: EngineEnd) -> None:
    """Engine 1 starts to listen after the front end has found engine 0."""
    waiting = Waiting()
    waiting.reader.engines = {number: EngineState(number, 0) for number in (0, 1)}
    waiting.reader.read_link()
    connected = [waiting.reader.connected]
    other = EngineEnd(_token(), "engine-1")
    try:
        waiting.reader.read_link(look=True)
        connected.append(waiting.reader.connected)
        other.put(encode_account(1, "one", ACCOUNT))
        other.flush()
        (span,) = waiting.complete()
    finally:
        other.close()
    assert connected == [False, True]
    assert names.PREFILL_PARTS[0].encode() in span


def test_a_request_does_not_wait_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "JOIN_S", 0.0)
    assert len(Waiting().complete()) == 1


def test_closing_does_not_wait() -> None:
    assert len(Waiting().complete(closing=True)) == 1


@pytest.mark.usefixtures("engine")
def test_a_request_without_an_account_does_not_wait() -> None:
    assert len(Waiting(awaits_account=False).complete()) == 1


def test_incomplete_or_unencodable_requests_are_counted() -> None:
    waiting = Waiting(delivered=float("nan"))

    def fails() -> RequestRecord:
        raise ZeroDivisionError

    waiting.backlog.submit(fails)
    assert waiting.complete(closing=True) == []
    assert waiting.drops.snapshot()["failed"] == 2


def test_each_sample_reports_the_requests_in_flight() -> None:
    made = Waiting()
    reader, in_flight = made.reader, InFlight()
    reader.engines = {number: EngineState(number, 0) for number in (0, 1)}
    reader.look_at_engines(sampled=True)
    assert names.IN_FLIGHT not in reader.samples[-1].state.gauges
    reader.in_flight = lambda: in_flight
    flight = Flight(None, None, None)
    in_flight.add(flight)
    reader.look_at_engines(sampled=True)
    for sample in list(reader.samples)[-2:]:
        assert sample.state.gauges[names.IN_FLIGHT] == 1
        assert sample.state.gauges[names.LAST_STEP_AGE] >= 0
    in_flight.remove(flight)
    reader.look_at_engines(sampled=True)
    assert reader.samples[-1].state.gauges[names.IN_FLIGHT] == 0
    assert names.LAST_STEP_AGE not in reader.samples[-1].state.gauges


def test_totals_begin_anew_if_the_clock_is_set_back_to_before_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Waiting().reader
    now_unix_ns = at_unix_ns = 1_790_000_000 * 10**9
    state = reader.engines[0] = EngineState(0, now_unix_ns, totals={names.STEPS: 1000})
    clock = SimpleNamespace(monotonic=time.monotonic, time_ns=lambda: at_unix_ns)
    monkeypatch.setattr("tailspan_vllm.export.reader.time", clock)
    samples = []
    hour_ns = 3600 * 10**9
    for after_ns in (0, -2 * hour_ns, -hour_ns, -3 * hour_ns):
        at_unix_ns = now_unix_ns + after_ns
        state.add(names.STEPS, 1)
        reader.look_at_engines(sampled=True)
        message = encode_samples([reader.samples[-1]], RESOURCE)
        batch = normalise_points(message, now_unix_ns)
        assert not batch.refused
        (sample,) = batch.samples
        samples.append((sample.started_unix_ns - now_unix_ns, sample.steps_total))
    assert samples == [(0, 1001), (-2 * hour_ns, 0), (-2 * hour_ns, 1), (-3 * hour_ns, 0)]
    assert state.started_unix_ns == now_unix_ns  # the engine has not started again


START = EngineInstants(108.0, 115.0, 130.0, 147.0, WorkerStart(2.0, 12.0, 9.0, 5.0))


def greet(engine: EngineEnd, reader: EngineCoreReader) -> None:
    engine.greeting = encode_identity(Identity(0, 1, "m", "c", "0.32.0", {}, 7, UNKNOWN, START))
    reader.read_link()
    engine.flush()
    reader.read_link()


def test_a_start_is_reported_once_when_its_instants_have_arrived(
    engine: EngineEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(START_VARIABLE, "100.0 106.0 1763600000000000000")
    found = Waiting()
    found.reader.served = 148.0
    found.reader.engines[0] = EngineState(0, 0)
    found.reader.report_starts(found.backlog)
    assert not found.backlog.spans
    greet(engine, found.reader)
    found.reader.report_starts(found.backlog)
    found.reader.report_starts(found.backlog)
    (span,) = found.backlog.spans
    assert names.START_WEIGHTS.encode() in span


@pytest.mark.parametrize("closing", [False, True])
def test_a_start_waits_for_the_parts_before_it_unless_the_server_stops(
    engine: EngineEnd, monkeypatch: pytest.MonkeyPatch, closing: bool
) -> None:
    monkeypatch.setenv(START_VARIABLE, "100.0 106.0 1763600000000000000")
    found = Waiting()
    found.reader.engines[0] = EngineState(0, 0)
    greet(engine, found.reader)
    found.reader.before = lambda: None
    found.reader.report_starts(found.backlog, closing)
    assert len(found.backlog.spans) == closing
    found.reader.before = lambda: {names.START_SCHEDULING: 30.0}
    found.reader.report_starts(found.backlog)
    (span,) = found.backlog.spans
    assert (names.START_SCHEDULING.encode() in span) is not closing


def test_a_start_without_its_instants_is_not_reported(
    engine: EngineEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(START_VARIABLE, raising=False)
    found = Waiting()
    found.reader.engines[0] = EngineState(0, 0)
    greet(engine, found.reader)
    found.reader.report_starts(found.backlog)
    assert not found.backlog.spans
