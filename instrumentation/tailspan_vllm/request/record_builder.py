"""Builds the record of a request outside the server's event loop.

In a batch, a record takes a third of the time of a separately built record.
"""

import re
import time
from collections.abc import Callable, Mapping

from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.engine_state.step_statistics import load_of
from tailspan_vllm.request.exchange import (
    REQUEST_ID,
    TRACEPARENT,
    Exchange,
    Flight,
    RequestSnapshot,
)
from tailspan_vllm.request.record import Outcome, RequestRecord
from tailspan_vllm.request.text_limits import bounded_text

PREEMPTIONS_LIMIT = 256
"""Maximum number of preemption times in a span (20 kB). `preemptions` counts all preemptions."""

BuildRecord = Callable[[], RequestRecord]

_NO_SUCH_MODEL = 404
"""vLLM's HTTP status for an unknown model or adapter."""

_TRACEPARENT = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class RecordBuilder:
    """Builds the records of one process's requests."""

    def __init__(self, engines: Mapping[int, EngineState], tenant_header: bytes) -> None:
        self._engines = engines
        self._tenant_header = tenant_header

    def flight(self, flight: Flight) -> RequestRecord:
        """The record of a request that the engine has finished or aborted."""
        facts, exchange = flight.facts, flight.exchange
        if facts is None:
            assert exchange is not None
            return self._engine_silent(exchange, flight)
        if exchange is not None:
            record = self._exchange(exchange, flight.outcome)
        else:
            record = self._offline(flight, facts)
        identify(record, flight)
        record.request_id = facts.request_id
        record.engine_request_id = facts.engine_request_id
        record.lora = facts.lora
        record.prompt_tokens = facts.prompt_tokens
        record.cached_tokens = facts.cached_tokens
        record.cache_write_tokens = facts.cache_write_tokens
        record.output_tokens = facts.output_tokens
        if exchange is None or not _continued_in_background(exchange, flight):
            _set_kinds(record, exchange)
        elif not exchange.streamed:
            record.first_byte = record.first_content = None  # the answer had no token
        record.engine = self._engine_of(flight)
        load = load_of(flight.load)
        record.waiting_at_arrival = load.waiting
        record.running_at_arrival = load.running
        record.kv_usage_at_arrival = load.kv_usage
        if facts.arrival_time is None:
            record.arrived = max(record.received, flight.added)
            record.awaits_account = True
        else:
            _set_instants(record, flight, facts, facts.arrival_time)
            record.left_early = record.scheduled is None and record.outcome == "abort"
            record.awaits_account = record.scheduled is not None or record.left_early
        return record

    def _engine_of(self, flight: Flight) -> int | None:
        if flight.engine is not None:
            return flight.engine
        return next(iter(self._engines)) if len(self._engines) == 1 else None

    def in_flight(self, flight: Flight, now: float) -> RequestRecord:
        """The record of a request that has not ended, with `now` as `delivered`."""
        assert flight.exchange is not None
        record = self._exchange(flight.exchange, "abort")
        identify(record, flight)
        record.delivered = now
        if record.first_byte is not None and record.first_byte > now:
            record.first_byte = None
        record.first_content = None
        record.lora = None if flight.lora is None else bounded_text(flight.lora)
        record.prompt_tokens = flight.prompt_tokens
        record.engine = self._engine_of(flight)
        return record

    def edge_only(self, exchange: Exchange, sees_engine: bool) -> RequestRecord:
        """Return the record of a request that did not reach the engine, or that no hook
        captured."""
        status = exchange.status
        outcome: Outcome = "rejected"
        if exchange.refused is not None:
            pass  # ignore the status: a stream can be refused after its status was sent
        elif status is None or (exchange.disconnected and status < 400):
            outcome = "abort"
        elif status < 400 and not sees_engine:
            outcome = "stop"
        record = self._exchange(exchange, outcome)
        record.first_byte = record.first_content = None
        if not sees_engine:
            record.basis = "edge"
            record.first_byte = exchange.first_byte
            record.first_content = exchange.first_content
        if exchange.unauthenticated:
            record.tenant = None  # the header may name another tenant
        if outcome == "rejected":
            record.error_type = bounded_text(exchange.refused or str(status))
        if status == _NO_SUCH_MODEL:
            # The name of an unknown model can be any text, so it must not become a label.
            record.model = None
        return record

    def _engine_silent(self, exchange: Exchange, flight: Flight) -> RequestRecord:
        record = self._exchange(exchange, "error")
        identify(record, flight)
        record.engine = self._engine_of(flight)
        record.error_type = "engine_silent"
        record.delivered = max(record.delivered, flight.ended or record.delivered)
        return record

    def _exchange(self, exchange: Exchange, outcome: Outcome) -> RequestRecord:
        state = next(iter(self._engines.values()), None)
        record = RequestRecord(
            received=exchange.received,
            delivered=exchange.delivered or time.monotonic(),
            wall_offset_ns=exchange.wall_offset_ns,
            outcome=outcome,
            basis="http",
            operation=exchange.operation,
            request_id=exchange.header(REQUEST_ID) or None,
            model=state.model if state else None,
            config=state.config if state else None,
            tenant=exchange.header(self._tenant_header) or None,
            first_byte=exchange.first_byte,
            first_content=exchange.first_content,
            streamed=exchange.streamed,
            http_status=exchange.status,
            route=exchange.route or None,
        )
        join_trace(record, exchange.header(TRACEPARENT))
        return record

    def _offline(self, flight: Flight, facts: RequestSnapshot) -> RequestRecord:
        state = next(iter(self._engines.values()), None)
        ended = flight.ended or flight.added
        wall_offset_ns = time.time_ns() - round(time.monotonic() * 1e9)
        received = flight.added
        if facts.arrival_time is not None:
            received = min(facts.arrival_time - wall_offset_ns / 1e9, received)
        record = RequestRecord(
            received=received,
            delivered=ended,
            wall_offset_ns=wall_offset_ns,
            outcome=flight.outcome,
            basis="engine",
            operation="text_completion",
            model=state.model if state else None,
            config=state.config if state else None,
        )
        join_trace(record, flight.traceparent)
        return record


def _continued_in_background(exchange: Exchange, flight: Flight) -> bool:
    return (
        exchange.engine_may_continue
        and not (exchange.streamed and flight.outcome == "abort")
        and flight.ended is not None
        and exchange.delivered is not None
        and flight.ended > exchange.delivered
    )


def _set_kinds(record: RequestRecord, exchange: Exchange | None) -> None:
    """Set the numbers of tokens, if the exchange has only this request."""
    answer = None if exchange is None else exchange.answer
    if answer is None or exchange is None or exchange.engine_requests != 1:
        return
    if record.output_tokens is not None:
        (
            record.reasoning_tokens,
            record.tool_call_tokens,
            record.content_tokens,
        ) = answer.tokens(record.output_tokens)


def identify(record: RequestRecord, flight: Flight) -> None:
    """Set a request's ids, and its age at the last report."""
    record.span_id = flight.span_id
    if record.trace_id is None:
        record.trace_id = flight.trace_id
    if record.streamed is None:  # the client disconnected before any answer
        record.streamed = flight.streamed
    if flight.reported_at is not None:
        record.reported_in_flight_s = age_s(record, flight.reported_at)


def age_s(record: RequestRecord, at: float) -> float:
    """A request's age in seconds, from times rounded to whole nanoseconds."""
    return (round(at * 1e9) - round(record.received * 1e9)) / 1e9


def _set_instants(
    record: RequestRecord, flight: Flight, facts: RequestSnapshot, arrival_time: float
) -> None:
    arrived = min(arrival_time - record.wall_offset_ns / 1e9, flight.added)
    record.arrived = max(record.received, arrived)
    record.preemptions = len(flight.preempted_at)
    record.handed = max(record.received, flight.added)
    if not facts.queued:
        return
    # On one machine, the engine has the same monotonic clock as this process. Timestamps from a
    # different machine are shifted, so that the request ends at the same time.
    ended = flight.ended or record.delivered
    latest = facts.last_token or facts.scheduled or facts.queued
    same_clock = flight.added - 1.0 <= facts.queued and latest <= ended
    shift = 0.0 if same_clock else ended - latest
    record.queued = max(record.arrived, facts.queued + shift)
    record.handed = min(record.handed, record.queued) if same_clock else None
    record.scheduled = _reached(facts.scheduled, shift)
    record.first_token = _reached(facts.first_token, shift)
    record.last_token = _reached(facts.last_token, shift)
    record.preempted_at = [at + shift for at in flight.preempted_at[:PREEMPTIONS_LIMIT]]
    record.resumed_at = [at + shift for at in flight.resumed_at[:PREEMPTIONS_LIMIT]]
    last = record.last_token or record.scheduled or record.queued
    record.delivered = max(record.delivered, last)


def _reached(instant: float | None, shift: float) -> float | None:
    return instant + shift if instant else None


def join_trace(record: RequestRecord, traceparent: str | None) -> None:
    """Make the record a child of a W3C traceparent, if the traceparent is valid."""
    match = _TRACEPARENT.match(traceparent or "")
    if match is None:
        return
    trace_id, parent_span_id, flags = (int(group, 16) for group in match.groups())
    if trace_id and parent_span_id:
        record.trace_id, record.parent_span_id = trace_id, parent_span_id
        record.trace_flags = flags
