"""Captures the requests of one front-end process, on the server's event loop.

A request is reported when its HTTP exchange and its engine request (`Flight`) have both ended.
"""

import os
import time
from functools import partial
from typing import Any

from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.export.sender import OtlpSender
from tailspan_vllm.request.exchange import (
    OPERATIONS,
    WANTED,
    Exchange,
    Flight,
    RequestSnapshot,
    current,
)
from tailspan_vllm.request.in_flight import InFlight
from tailspan_vllm.request.record import Outcome
from tailspan_vllm.request.record_builder import RecordBuilder
from tailspan_vllm.request.text_limits import bounded_id, bounded_text
from tailspan_vllm.settings import Settings, settings_from


class Capture:
    """This class never blocks the server's event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sender = OtlpSender(settings)
        self.engines: dict[int, EngineState] = {}
        self.sees_engine = True
        """Whether the hooks inside vLLM's front end are installed."""
        self.wanted_headers = WANTED | {settings.tenant_header}
        self._records = RecordBuilder(self.engines, settings.tenant_header)
        self.in_flight = InFlight()
        self._entering: tuple[str, Flight] | None = None
        """The latest request, until an engine is chosen for it."""
        self._removed: list[Flight] = []
        self._unsettled: dict[int, Exchange] = {}
        """Exchanges that have ended, but still have unfinished flights."""
        self._lost: dict[int, Exchange] = {}
        """Unfinished exchanges for which a hook failed."""
        self.sender.observe(
            self.engines,
            self.give_up_on_all,
            lambda: self.in_flight if self.sees_engine else None,
            self._records.in_flight,
        )

    # --- the engine's side ----------------------------------------------------------------

    def flight_began(self, trace_headers: Any, request_id: str = "") -> Flight:
        """Record that a request enters the engine. Called in the asyncio task of its exchange."""
        exchange = current.get()
        traceparent = None
        if exchange is None and trace_headers:
            traceparent = bounded_text(str(trace_headers.get("traceparent", "")))
        load = None
        if len(self.engines) == 1:
            for state in self.engines.values():
                load = state.load_at_arrival()
        flight = Flight(exchange, traceparent, load)
        self._entering = request_id, flight
        self.sender.expect()
        if exchange is not None:
            exchange.engine_requests += 1
            exchange.flights[flight] = None
        self.in_flight.add(flight)
        return flight

    def flight_routed(self, request_id: str, engine: int) -> None:
        """Record the engine that was chosen for a request. Called directly after `flight_began`."""
        entering, self._entering = self._entering, None
        if entering is None or entering[0] != request_id:
            return
        flight, state = entering[1], self.engines.get(engine)
        flight.engine = engine
        if state is not None and flight.load is None:
            flight.load = state.load_at_arrival()

    def flight_lost(self, exchange: Exchange | None) -> None:
        """Report only the HTTP layer's data of an exchange, because a hook failed."""
        if exchange is None:
            return
        self.in_flight.remove_all(exchange.flights)
        exchange.flights.clear()
        if self._unsettled.pop(id(exchange), None) is None:
            self._lost[id(exchange)] = exchange
        else:
            self._send_edge(exchange, sees_engine=False)

    def flight_ended(self, flight: Flight, state: Any, outcome: Outcome) -> None:
        """Record that the engine has finished or aborted a request."""
        if flight.ended is not None:
            return
        self.in_flight.remove(flight)
        flight.ended = time.monotonic()
        flight.outcome = outcome
        flight.removed_state = None
        flight.facts = facts_of(state)
        exchange = flight.exchange
        if exchange is None:
            self._send(flight)
        elif exchange.delivered is not None and flight in exchange.flights:
            del exchange.flights[flight]
            if not exchange.flights:
                self._unsettled.pop(id(exchange), None)
            self._send(flight)

    def flight_removed(self, flight: Flight, state: Any) -> None:
        """Record that vLLM removed a request. vLLM may report its outcome directly afterwards."""
        flight.removed_state = state
        for earlier in self._removed:
            if earlier.open:
                self.flight_ended(earlier, earlier.removed_state, "error")
        self._removed.clear()
        if flight.exchange is None:
            self._removed.append(flight)

    # --- the HTTP side --------------------------------------------------------------------

    def exchange_ended(self, exchange: Exchange) -> None:
        """Record that the last byte was written, or that the client has disconnected."""
        exchange.end()
        self.in_flight.remove_all(exchange.flights)
        if exchange.method != "POST":
            return
        lost = self._lost.pop(id(exchange), None) is not None
        if lost or not exchange.entered_engine:
            self._send_edge(exchange, sees_engine=self.sees_engine and not lost)
            return
        for flight in tuple(exchange.flights):
            if not flight.open:
                del exchange.flights[flight]
                self._send(flight)
            elif flight.removed_state is not None:
                self.flight_ended(flight, flight.removed_state, "error")
        if exchange.flights:
            self._unsettled[id(exchange)] = exchange
            if len(self._unsettled) > self.settings.queue_limit:
                self.give_up_on(next(iter(self._unsettled.values())))

    def give_up_on(self, exchange: Exchange) -> None:
        """Report an exchange's unfinished requests, for example after a crash of the engine."""
        self._unsettled.pop(id(exchange), None)
        flights, exchange.flights = exchange.flights, {}
        for flight in flights:
            flight.ended = time.monotonic()
            self._send(flight)

    def give_up_on_all(self) -> None:
        """Report all unfinished requests. Called when the process ends."""
        for exchange in list(self._unsettled.values()):
            self.give_up_on(exchange)

    def _send_edge(self, exchange: Exchange, *, sees_engine: bool) -> None:
        if exchange.path not in OPERATIONS:
            return
        build_record = partial(self._records.edge_only, exchange, sees_engine)
        if exchange.unauthenticated:
            self.sender.submit(build_record, "unauthenticated")
        elif exchange.refused_before_engine:
            self.sender.submit(build_record, "refused")
        else:
            self.sender.submit(build_record)

    def _send(self, flight: Flight) -> None:
        self.sender.submit(partial(self._records.flight, flight))


def facts_of(state: Any) -> RequestSnapshot:
    """A copy of the values in vLLM's `RequestState` that a span reports."""
    # This is the response's id. Before vLLM 0.14, the engine used the same id, with a prefix for
    # child requests.
    given = getattr(state, "external_req_id", None)
    if given is None and state.parent_req is not None:
        given = state.parent_req.request_id
    stats = state.stats
    detokenizer = None if stats is not None else getattr(state, "detokenizer", None)
    output_tokens = None if detokenizer is None else detokenizer.num_output_tokens()
    if stats is not None:
        output_tokens = stats.num_generation_tokens
    # The value is 0 until vLLM sets it with the first output.
    written = getattr(state, "num_cache_creation_tokens", None) if output_tokens else None
    # If a prefill server sent its number of cached tokens with the request, vLLM reports that
    # number. This engine's own number then comes from the account of the step ledger.
    remote = getattr(state, "remote_prefill_cached_tokens", None)
    cached = state.num_cached_tokens if remote is None else None
    return RequestSnapshot(
        bounded_id(str(given or state.request_id)),
        bounded_id(state.request_id),
        None if state.lora_name is None else bounded_text(state.lora_name),
        state.prompt_len,
        cached,
        written,
        output_tokens,
        None if stats is None else stats.arrival_time,
        None if stats is None else stats.queued_ts,
        None if stats is None else stats.scheduled_ts,
        None if stats is None else stats.first_token_ts,
        None if stats is None else stats.last_token_ts,
    )


_capture: Capture | None = None


def process_capture() -> Capture:
    """This process's capture. It is created at the first call, after vLLM has forked its
    processes."""
    global _capture
    if _capture is None:
        _capture = Capture(settings_from(os.environ))
    return _capture
