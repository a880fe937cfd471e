import gc
import itertools
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.front_end.capture import Capture
from tailspan_vllm.names import RUNNING, WAITING
from tailspan_vllm.request.exchange import Exchange, current
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.request.text_limits import TEXT_LIMIT, bounded_id
from tailspan_vllm.settings import settings_from


class State(SimpleNamespace):
    """The state of a request in vLLM's output processor at the request's end."""


def a_state(**given: Any) -> State:
    now = time.monotonic()
    stats = SimpleNamespace(
        arrival_time=time.time() - 0.01,
        queued_ts=now,
        scheduled_ts=now,
        first_token_ts=now,
        last_token_ts=now,
        num_generation_tokens=7,
    )
    fields = {
        "external_req_id": "chatcmpl-1",
        "request_id": "chatcmpl-1-a",
        "lora_name": None,
        "prompt_len": 20,
        "num_cached_tokens": 4,
        "stats": stats,
    }
    return State(**{**fields, **given})


class Server:
    def __init__(self) -> None:
        self.capture = Capture(settings_from({"OTEL_SDK_DISABLED": "true"}))
        self.submitted: list[Any] = []
        setattr(self.capture.sender, "submit", lambda build, *_: self.submitted.append(build))  # noqa: B010  # a method is replaced

    @property
    def records(self) -> list[RequestRecord]:
        return [build() for build in self.submitted]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}
    made = Exchange(scope)
    token = current.set(made)
    yield made
    current.reset(token)


def answered(exchange: Exchange) -> None:
    exchange.answered({"type": "http.response.start", "status": 200, "headers": []})
    exchange.first_byte = exchange.delivered = time.monotonic()


@pytest.mark.parametrize("order", list(itertools.permutations(("engine", "client", "edge"))))
def test_a_request_is_one_record(
    server: Server, exchange: Exchange, order: tuple[str, ...]
) -> None:
    flight = server.capture.flight_began(None)
    for event in order:
        if event == "engine":
            server.capture.flight_ended(flight, a_state(), "abort")
        elif event == "client":
            exchange.delivered = exchange.delivered or time.monotonic()
            exchange.disconnected = True
        else:
            exchange.delivered = exchange.delivered or time.monotonic()
            server.capture.exchange_ended(exchange)
    (record,) = server.records
    assert (record.outcome, record.request_id, record.output_tokens) == ("abort", "chatcmpl-1", 7)
    server.capture.give_up_on(exchange)
    assert len(server.submitted) == 1


def test_tokens_written_to_the_cache_are_known_after_the_first_token(
    server: Server, exchange: Exchange
) -> None:
    """vLLM starts the count at 0, which is not a measurement. vLLM 0.25 has no count."""
    waiting = a_state(num_cache_creation_tokens=0)
    waiting.stats.num_generation_tokens = 0
    states = [a_state(num_cache_creation_tokens=16), a_state(num_cache_creation_tokens=0)]
    for state in (*states, waiting, a_state()):
        server.capture.flight_ended(server.capture.flight_began(None), state, "stop")
    answered(exchange)
    server.capture.exchange_ended(exchange)
    assert [record.cache_write_tokens for record in server.records] == [16, 0, None, None]


@pytest.mark.parametrize(("remote", "expected"), [(0, None), (16, None), (None, 4)])
def test_the_hits_of_a_prefill_server_are_no_hits_of_this_engine(
    server: Server, exchange: Exchange, remote: int | None, expected: int | None
) -> None:
    """A decode server reports the hits of the prefill server as the cached tokens of a response."""
    state = a_state(remote_prefill_cached_tokens=remote)
    server.capture.flight_ended(server.capture.flight_began(None), state, "stop")
    answered(exchange)
    server.capture.exchange_ended(exchange)
    (record,) = server.records
    assert record.cached_tokens == expected


def test_each_engine_request_of_a_call_is_a_row(server: Server, exchange: Exchange) -> None:
    first, _ = server.capture.flight_began(None), server.capture.flight_began(None)
    server.capture.flight_ended(first, a_state(), "stop")
    answered(exchange)
    server.capture.exchange_ended(exchange)
    assert [record.outcome for record in server.records] == ["stop"]
    server.capture.give_up_on_all()
    assert [record.outcome for record in server.records] == ["stop", "error"]
    assert server.records[1].error_type == "engine_silent"


def test_responses_in_the_background_have_a_limit(server: Server) -> None:
    for _ in range(server.capture.settings.queue_limit + 10):
        scope = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": []}
        exchange = Exchange(scope)
        token = current.set(exchange)
        server.capture.flight_began(None)
        current.reset(token)
        answered(exchange)
        server.capture.exchange_ended(exchange)
    assert len(server.capture._unsettled) == server.capture.settings.queue_limit
    assert [record.error_type for record in server.records] == ["engine_silent"] * 10


def test_a_late_refusal_is_no_second_row(server: Server, exchange: Exchange) -> None:
    flight = server.capture.flight_began(None)
    exchange.delivered = time.monotonic()
    server.capture.flight_ended(flight, a_state(), "error")
    exchange.answered({"type": "http.response.start", "status": 500, "headers": []})
    server.capture.exchange_ended(exchange)
    assert [(record.outcome, record.http_status) for record in server.records] == [("error", 500)]


def test_an_offline_request_needs_no_exchange(server: Server) -> None:
    flight = server.capture.flight_began(
        {"traceparent": "00-" + "0a" * 16 + "-" + "0b" * 8 + "-01"}
    )
    server.capture.flight_ended(flight, a_state(), "length")
    (record,) = server.records
    assert (record.basis, record.prompt_tokens, record.cached_tokens) == ("engine", 20, 4)
    assert record.trace_id == int("0a" * 16, 16)
    assert record.received <= (record.arrived or 0) <= record.delivered


def test_frontend_time_ends_at_the_hand_over(server: Server, exchange: Exchange) -> None:
    """The engine reads new requests only between two steps."""
    flight = server.capture.flight_began(None)
    state = a_state()
    state.stats.queued_ts = state.stats.last_token_ts = flight.added + 1e-3
    state.stats.scheduled_ts = state.stats.first_token_ts = flight.added + 1e-3
    while time.monotonic() < flight.added + 2e-3:
        pass
    server.capture.flight_ended(flight, state, "stop")
    exchange.delivered = time.monotonic()
    server.capture.exchange_ended(exchange)
    (record,) = server.records
    assert record.handed == flight.added
    assert (record.queued or 0) - record.handed == pytest.approx(1e-3)


def test_the_load_is_that_of_the_arrival(server: Server) -> None:
    state = EngineState(0, 0, gauges={WAITING: 2, RUNNING: 1})
    server.capture.engines[0] = state
    first = server.capture.flight_began(None)
    state.load = SimpleNamespace(num_waiting_reqs=5, num_running_reqs=3, kv_cache_usage=0.5)
    second = server.capture.flight_began(None)
    state.load = SimpleNamespace(num_waiting_reqs=0, num_running_reqs=0, kv_cache_usage=0.0)
    for flight in (first, second):
        server.capture.flight_ended(flight, a_state(), "stop")
    reported = [(record.waiting_at_arrival, record.running_at_arrival) for record in server.records]
    assert reported == [(2, 1), (5, 3)]
    assert [record.kv_usage_at_arrival for record in server.records] == [None, 0.5]


def test_with_several_api_servers_the_load_is_not_that_of_the_last_statistics(
    server: Server,
) -> None:
    """The last statistics that this API server received may be hours old."""
    server.capture.engines[0] = EngineState(
        0,
        0,
        gauges={WAITING: 0, RUNNING: 0},
        load=SimpleNamespace(num_waiting_reqs=50, num_running_reqs=8, kv_cache_usage=0.9),
        shared=True,
    )
    server.capture.flight_ended(server.capture.flight_began(None), a_state(), "stop")
    (record,) = server.records
    assert (record.waiting_at_arrival, record.running_at_arrival) == (0, 0)


def test_vllms_own_state_is_not_kept_alive(server: Server, exchange: Exchange) -> None:
    """vLLM's state contains the prompt and the response, so it must be freed."""
    gc.disable()
    try:
        flight, state = server.capture.flight_began(None), a_state()
        state.flight = state.stats.flight = flight
        server.capture.flight_removed(flight, state)
        server.capture.flight_ended(flight, state, "stop")
        answered(exchange)
        server.capture.exchange_ended(exchange)
        gone = weakref.ref(state)
        del state
        assert gone() is None
        assert len(server.records) == 1
        assert not exchange.flights  # there is no reference cycle
    finally:
        gc.enable()


@pytest.mark.parametrize("given", ["x" * 1_100_000, "a\ud800b"])
def test_an_id_of_any_length_is_bounded_and_still_joins(server: Server, given: str) -> None:
    """The front end and the engine core shorten ids with the same function."""
    flight = server.capture.flight_began({"traceparent": given})
    state = a_state(external_req_id=given, request_id=f"{given}-0", lora_name=given)
    server.capture.flight_ended(flight, state, "stop")
    (record,) = server.records
    assert record.engine_request_id == bounded_id(f"{given}-0")
    for text in (record.request_id, record.engine_request_id, record.lora, flight.traceparent):
        assert text is not None
        assert len(text) <= TEXT_LIMIT
        text.encode()


def test_ten_thousand_prompts_take_linear_time(server: Server, exchange: Exchange) -> None:
    flights = [server.capture.flight_began(None) for _ in range(10_000)]
    exchange.delivered = time.monotonic()
    server.capture.exchange_ended(exchange)
    for flight in reversed(flights):
        server.capture.flight_ended(flight, a_state(), "abort")
    assert len(server.submitted) == 10_000
    assert not exchange.flights


def test_in_flight_ends_with_the_request_or_client(server: Server, exchange: Exchange) -> None:
    capture = server.capture
    ended, left = capture.flight_began(None), capture.flight_began(None)
    assert len(capture.in_flight) == 2
    capture.flight_ended(ended, a_state(), "stop")
    assert len(capture.in_flight) == 1
    answered(exchange)
    capture.exchange_ended(exchange)
    assert len(capture.in_flight) == 0
    capture.flight_ended(left, a_state(), "abort")
    lost = Exchange({"type": "http", "method": "POST", "path": "/", "headers": []})
    token = current.set(lost)
    capture.flight_began(None)
    current.reset(token)
    capture.flight_lost(lost)
    assert len(capture.in_flight) == 0
    token = current.set(None)
    offline = capture.flight_began(None)
    current.reset(token)
    assert len(capture.in_flight) == 1
    capture.flight_ended(offline, a_state(), "length")
    assert len(capture.in_flight) == 0
