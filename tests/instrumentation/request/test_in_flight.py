import time
from typing import Any

import pytest
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.request.exchange import Exchange, Flight
from tailspan_vllm.request.in_flight import STOPPED_S, InFlight, LastStep


class Clock:
    """A monotonic clock that advances by one second per sample."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    return clock


class Process:
    def __init__(self, clock: Clock, engines: int = 1) -> None:
        self.clock = clock
        self.in_flight = InFlight()
        self.states = [EngineState(number, 0) for number in range(engines)]
        self.last_step = LastStep()

    def begin(self, engine: int | None = None) -> Flight:
        flight = Flight(None, None, None)
        flight.engine = engine
        self.in_flight.add(flight)
        return flight

    def look(self, seconds: int = 1, stepping: int | None = None) -> dict[str, Any]:
        """Advance the clock second by second, and return the last gauges.

        Args:
            stepping: the engine that takes a step in each second; None for no engine.
        """
        return self.look_at_all(seconds, stepping)[0]

    def look_at_all(
        self, seconds: int = 1, stepping: int | None = None
    ) -> dict[int, dict[str, Any]]:
        values: dict[int, dict[str, Any]] = {}
        for _ in range(seconds):
            self.clock.now += 1
            if stepping is not None:
                self.states[stepping].add(names.STEPS, 1)
            values = self.last_step.gauges(self.states, self.in_flight)
        return values


@pytest.fixture
def process(clock: Clock) -> Process:
    return Process(clock)


def test_a_hang_during_a_request_shows(process: Process) -> None:
    process.begin()
    process.look(5, stepping=0)
    assert process.look(95) == {
        names.IN_FLIGHT: 1,
        names.OLDEST_REQUEST_AGE: 100,
        names.LAST_STEP_AGE: 95,
    }
    assert process.look(1, stepping=0)[names.LAST_STEP_AGE] == 0


def test_an_idle_hang_shows_from_the_next_request_on(process: Process) -> None:
    assert process.look(3600) == {names.IN_FLIGHT: 0, names.OLDEST_REQUEST_AGE: 0}
    process.begin()
    assert process.look(1)[names.LAST_STEP_AGE] == 1
    process.begin()
    assert process.look(70) == {
        names.IN_FLIGHT: 2,
        names.OLDEST_REQUEST_AGE: 71,
        names.LAST_STEP_AGE: 71,
    }


def test_without_requests_there_is_no_age_of_a_step(process: Process) -> None:
    flight = process.begin()
    process.look(2)
    process.in_flight.remove(flight)
    process.in_flight.remove(flight)
    assert process.look(100) == {names.IN_FLIGHT: 0, names.OLDEST_REQUEST_AGE: 0}


@pytest.mark.parametrize("total", [names.STEPS, names.DECODE_TOKENS, names.PREFILL_TOKENS, None])
def test_any_source_reports_a_step(process: Process, total: str | None) -> None:
    process.begin()
    process.look(30)
    if total is None:
        process.states[0].load = object()
    else:
        process.states[0].add(total, 1)
    assert process.look(1)[names.LAST_STEP_AGE] == 0


def test_a_hang_of_one_engine_shows_while_another_takes_steps(clock: Clock) -> None:
    process = Process(clock, engines=2)
    process.look_at_all()
    process.begin(engine=0)
    process.begin(engine=1)
    reported = process.look_at_all(100, stepping=1)
    assert reported[0][names.LAST_STEP_AGE] == 100
    assert reported[1][names.LAST_STEP_AGE] == 0
    assert reported[0][names.IN_FLIGHT] == reported[1][names.IN_FLIGHT] == 2


def test_an_engine_without_requests_has_no_age_of_a_step(clock: Clock) -> None:
    process = Process(clock, engines=2)
    process.begin(engine=1)
    reported = process.look_at_all(100, stepping=1)
    assert names.LAST_STEP_AGE not in reported[0]
    assert reported[1][names.LAST_STEP_AGE] == 0
    process.begin(engine=0)
    assert process.look_at_all(3, stepping=1)[0][names.LAST_STEP_AGE] == 3


def test_clients_that_give_up_one_after_another_do_not_hide_a_hang(clock: Clock) -> None:
    process = Process(clock, engines=2)
    process.look_at_all()
    process.begin(engine=1)
    before = process.begin(engine=0)
    for _ in range(10):
        process.look_at_all(5, stepping=1)
        after = process.begin(engine=0)
        process.look_at_all(5, stepping=1)
        process.in_flight.remove(before)
        before = after
    assert process.look_at_all(1, stepping=1)[0][names.LAST_STEP_AGE] == 101


def test_a_request_whose_engine_is_not_chosen_yet_hides_no_hang(clock: Clock) -> None:
    process = Process(clock, engines=2)
    process.look_at_all()
    process.begin(engine=0)
    process.look_at_all(70, stepping=1)
    process.begin()
    assert process.look_at_all(1, stepping=1)[0][names.LAST_STEP_AGE] == 71


def test_an_idle_engine_beside_a_busy_one_does_not_hang(clock: Clock) -> None:
    """The front end does not know which engine has which request."""
    process = Process(clock, engines=2)
    process.begin()
    assert process.look(100, stepping=1)[names.LAST_STEP_AGE] == 0
    assert process.look(100)[names.LAST_STEP_AGE] == 100


def test_a_process_that_was_stopped_reports_no_hang(process: Process) -> None:
    process.begin()
    process.look(1)
    process.clock.now += 10 * STOPPED_S
    assert process.look(1)[names.LAST_STEP_AGE] == 0
    assert process.look(5)[names.LAST_STEP_AGE] == 5


def test_the_age_counts_from_when_the_request_was_received(clock: Clock) -> None:
    exchange = Exchange({"type": "http", "method": "POST", "path": "/", "headers": []})
    clock.now += 3
    in_flight = InFlight()
    in_flight.add(Flight(exchange, None, None))
    assert in_flight.oldest_s(clock.now) == 3


def test_a_front_end_that_does_not_see_its_engine_reports_nothing(process: Process) -> None:
    assert process.last_step.gauges(process.states, None) == {}


def test_a_concurrent_change_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    in_flight = InFlight()
    in_flight.add(Flight(None, None, None))
    failures = iter([RuntimeError("dictionary changed size during iteration")])

    def first(each: Any, default: Any = None) -> Any:
        for error in failures:
            raise error
        return next(each, default)

    monkeypatch.setattr(in_flight, "next", first, raising=False)
    assert in_flight.oldest_s(time.monotonic() + 5) >= 5
