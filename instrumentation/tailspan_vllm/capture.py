"""From hooks to records: what one front-end process knows of the requests in its care.

A record is made when both sides of a request have ended, its exchange with the client and its
flight through the engine, whichever ends last.
"""

import os
import re
import time
from typing import Any, Protocol

from tailspan_vllm.exchange import OPERATIONS, Exchange, Flight, current
from tailspan_vllm.metrics import EngineState
from tailspan_vllm.record import Outcome, RequestRecord
from tailspan_vllm.sender import Sender
from tailspan_vllm.settings import Settings, settings_from

LABEL_LIMIT = 256
"""Characters kept of a label that a client can choose."""

_TRACEPARENT = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class EngineStats(Protocol):
    """What vLLM keeps of a request's instants (`RequestStateStats`)."""

    arrival_time: float
    queued_ts: float
    scheduled_ts: float
    first_token_ts: float
    last_token_ts: float
    num_generation_tokens: int


class Capture:
    """The process's view of requests. Called on the server's event loop; never blocks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sender = Sender(settings)
        self.engines: dict[int, EngineState] = {}
        self.sees_engine = True
        """Whether this vLLM let us listen to its front end's half of the engine."""
        self._left: list[Flight] = []
        self._silent: dict[int, Exchange] = {}
        """Exchanges that are over, and of whose requests the engine has yet to speak."""
        self.sender.observe(self.engines, at_end=self.give_up_on_all)

    # --- the engine's side ----------------------------------------------------------------

    def flight_began(self, trace_headers: Any) -> Flight:
        """A request passes the engine's front door, in the task that serves its exchange."""
        exchange = current.get()
        gauges = next(iter(self.engines.values())).gauges if len(self.engines) == 1 else {}
        flight = Flight(exchange, trace_headers, gauges)
        self.sender.expect()
        if exchange is not None:
            exchange.flights.append(flight)
        return flight

    def flight_ended(self, flight: Flight, state: Any, outcome: Outcome) -> None:
        """The engine is done with a request, or has given it up."""
        if flight.ended is not None:
            return
        flight.ended = time.monotonic()
        flight.record = self._record_of(flight, state, outcome)
        if flight.exchange is None or flight.exchange.delivered is not None:
            self._send(flight)

    def flight_left(self, flight: Flight, state: Any) -> None:
        """It is struck from the books; vLLM says why right afterwards, or never."""
        flight.left = state
        for earlier in self._left:
            if earlier.open:
                self.flight_ended(earlier, earlier.left, "error")
        self._left.clear()
        if flight.exchange is None:
            self._left.append(flight)

    # --- the HTTP side --------------------------------------------------------------------

    def exchange_ended(self, exchange: Exchange) -> None:
        """The last byte was written, or the client has gone."""
        if exchange.scope.get("method") != "POST":
            return
        if not exchange.flights:
            if exchange.path in OPERATIONS:
                self.sender.submit(self._record_unseen_by_engine(exchange))
            return
        for flight in exchange.flights:
            if not flight.open:
                self._send(flight)
            elif flight.left is not None:
                self.flight_ended(flight, flight.left, "error")
        if any(flight.open for flight in exchange.flights):
            self._silent[id(exchange)] = exchange

    def give_up_on(self, exchange: Exchange) -> None:
        """The engine never said how these requests ended: it died, or an error overtook it."""
        self._silent.pop(id(exchange), None)
        for flight in exchange.flights:
            if flight.open:
                flight.ended = time.monotonic()
                flight.record = self._blank(exchange, "error")
                flight.record.error_type = "engine_silent"
                self._send(flight)

    def give_up_on_all(self) -> None:
        """The process ends; what the engine has not said by now it will not say."""
        for exchange in list(self._silent.values()):
            self.give_up_on(exchange)

    # --- records --------------------------------------------------------------------------

    def _send(self, flight: Flight) -> None:
        record, exchange = flight.record, flight.exchange
        if record is None:
            return
        if exchange is not None and exchange.delivered is not None:
            record.first_byte = exchange.first_byte
            record.delivered = max(record.delivered, exchange.delivered)
            _tell_answer(record, exchange)
        flight.record = None
        self.sender.submit(record)

    def _blank(self, exchange: Exchange, outcome: Outcome) -> RequestRecord:
        """A record of what the HTTP side alone knows."""
        state = next(iter(self.engines.values()), None)
        record = RequestRecord(
            received=exchange.received,
            delivered=exchange.delivered or time.monotonic(),
            wall_offset_ns=exchange.wall_offset_ns,
            outcome=outcome,
            basis="http",
            operation=exchange.operation,
            request_id=_label(exchange.header(b"x-request-id")),
            model=state.model if state else None,
            config=state.config if state else None,
            tenant=_label(exchange.header(self.settings.tenant_header)),
        )
        _join_trace(record, exchange.header(b"traceparent"))
        return record

    def _record_unseen_by_engine(self, exchange: Exchange) -> RequestRecord:
        status = exchange.status
        outcome: Outcome = "rejected"
        if status is None or (exchange.disconnected and status < 400):
            outcome = "abort"
        elif status < 400 and not self.sees_engine:
            outcome = "stop"
        record = self._blank(exchange, outcome)
        _tell_answer(record, exchange)
        if not self.sees_engine:
            record.basis = "edge"
            record.first_byte = exchange.first_byte
        if outcome == "rejected":
            record.error_type = str(exchange.status)
        return record

    def _record_of(self, flight: Flight, state: Any, outcome: Outcome) -> RequestRecord:
        ended = flight.ended or time.monotonic()
        stats: EngineStats | None = state.stats
        if flight.exchange is not None:
            record = self._blank(flight.exchange, outcome)
        else:
            engine = next(iter(self.engines.values()), None)
            received = _on_our_clock(stats, flight) if stats else flight.added
            record = RequestRecord(
                received=received,
                delivered=ended,
                wall_offset_ns=flight.wall_offset_ns,
                outcome=outcome,
                basis="engine",
                operation="text_completion",
                model=engine.model if engine else None,
                config=engine.config if engine else None,
            )
            _join_trace(record, (flight.trace_headers or {}).get("traceparent"))
        record.request_id = _clients_id(state)
        record.engine_request_id = state.request_id
        record.lora = state.lora_name
        record.prompt_tokens = state.prompt_len
        record.cached_tokens = state.num_cached_tokens
        record.engine = next(iter(self.engines)) if len(self.engines) == 1 else None
        record.waiting_at_arrival = _int(flight.waiting)
        record.running_at_arrival = _int(flight.running)
        record.kv_usage_at_arrival = flight.usage
        if stats is None:
            # Nothing was measured here; the engine's account may still come.
            record.arrived = max(record.received, flight.added)
            record.output_tokens = _tokens_made(state)
            record.awaits_account = True
        else:
            self._tell_instants(record, flight, stats, ended)
            record.awaits_account = record.scheduled is not None
        return record

    def _tell_instants(
        self, record: RequestRecord, flight: Flight, stats: EngineStats, ended: float
    ) -> None:
        record.arrived = max(record.received, _on_our_clock(stats, flight))
        record.output_tokens = stats.num_generation_tokens
        record.preemptions = len(flight.preempted_at)
        if not stats.queued_ts:
            return
        # The engine's monotonic clock is this process's own on one machine. From another
        # machine its readings make no sense here: then the last thing heard anchors them.
        latest = stats.last_token_ts or stats.scheduled_ts or stats.queued_ts
        same_clock = flight.added - 1.0 <= stats.queued_ts and latest <= ended
        shift = 0.0 if same_clock else ended - latest
        record.queued = max(record.arrived, stats.queued_ts + shift)
        record.scheduled = _reached(stats.scheduled_ts, shift)
        record.first_token = _reached(stats.first_token_ts, shift)
        record.last_token = _reached(stats.last_token_ts, shift)
        record.preempted_at = [at + shift for at in flight.preempted_at]
        record.resumed_at = [at + shift for at in flight.resumed_at]
        last = record.last_token or record.scheduled or record.queued
        record.delivered = max(record.delivered, last)


def _tell_answer(record: RequestRecord, exchange: Exchange) -> None:
    """What is known of an exchange only when it is over."""
    record.streamed = exchange.streamed
    record.http_status = exchange.status
    record.route = _label(exchange.route)


def _on_our_clock(stats: EngineStats, flight: Flight) -> float:
    """The front end's wall-clock arrival, as a reading of the monotonic clock."""
    return min(stats.arrival_time - flight.wall_offset_ns / 1e9, flight.added)


def _clients_id(state: Any) -> str:
    """The id in the answer. Before 0.14 the engine used that itself, with a child's prefixed."""
    given = getattr(state, "external_req_id", None)
    if given is None and state.parent_req is not None:
        given = state.parent_req.request_id
    return str(given or state.request_id)


def _tokens_made(state: Any) -> int | None:
    detokenizer = getattr(state, "detokenizer", None)
    return detokenizer.num_output_tokens() if detokenizer is not None else None


def _reached(instant: float, shift: float) -> float | None:
    return instant + shift if instant else None


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)


def _label(text: str | None) -> str | None:
    return text[:LABEL_LIMIT] if text else None


def _join_trace(record: RequestRecord, traceparent: str | None) -> None:
    """Make the record a child of a W3C traceparent; leave it a root where there is none."""
    match = _TRACEPARENT.match(traceparent or "")
    if match is None:
        return
    trace_id, parent_span_id, flags = (int(group, 16) for group in match.groups())
    if trace_id and parent_span_id:
        record.trace_id, record.parent_span_id = trace_id, parent_span_id
        record.trace_flags = flags


_capture: Capture | None = None


def process_capture() -> Capture:
    """The one capture of this process, made on first use: after vLLM has forked, never before."""
    global _capture
    if _capture is None:
        _capture = Capture(settings_from(os.environ))
    return _capture
