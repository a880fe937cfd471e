"""Where we listen inside vLLM's front end. Private names: checked before use, each on its own.

All of it runs once per request or once per scheduling event, none of it per step or token.

Source: vllm/v1/engine/output_processor.py and vllm/v1/metrics/stats.py, 0.12 to 0.33.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from tailspan_vllm import guard
from tailspan_vllm.capture import Capture
from tailspan_vllm.exchange import Flight, current
from tailspan_vllm.record import Outcome

logger = logging.getLogger(__name__)

FLIGHT = "_tailspan_flight"
"""Attribute that ties a `RequestState`, and its stats, to its flight."""

_OUTCOMES: dict[str, Outcome] = {
    "stop": "stop",
    "length": "length",
    "abort": "abort",
    "error": "error",
    "repetition": "stop",
}


_NOT_MISSED = {
    "_finish_request",  # before 0.15 nothing needs it
    "record_admission_rejection",  # before 0.32 nothing was refused so
}


def install(capture: Capture) -> list[str]:
    """Wrap the front end's methods.

    Returns: the names of hooks for which this vLLM has no place.
    """
    try:
        from vllm.v1.engine.output_processor import OutputProcessor
        from vllm.v1.metrics.loggers import StatLoggerManager
        from vllm.v1.metrics.stats import IterationStats
    except ImportError as error:
        capture.sees_engine = False
        return [str(error)]
    targets: list[tuple[type, str, Callable[[Any, Capture], Any]]] = [
        (OutputProcessor, "add_request", _add_request),
        (OutputProcessor, "_finish_request", _finish),
        (OutputProcessor, "_update_stats_from_finished", _finished),
        (OutputProcessor, "abort_requests", _abort_requests),
        (IterationStats, "update_from_events", _events),
        (StatLoggerManager, "record_admission_rejection", _refused),
    ]
    missing = []
    # Without both of these a request would be told twice, or never: then the edge alone is.
    if not all(
        hasattr(OutputProcessor, name) for name in ("add_request", "_update_stats_from_finished")
    ):
        capture.sees_engine = False
        return ["OutputProcessor's add_request or _update_stats_from_finished"]
    for owner, name, wrap in targets:
        original = getattr(owner, name, None)
        if original is None and name not in _NOT_MISSED:
            missing.append(f"{owner.__name__}.{name}")
        elif original is not None and not hasattr(original, "_tailspan"):
            wrapped: Any = wraps(original)(wrap(original, capture))
            wrapped._tailspan = True
            setattr(owner, name, wrapped)
    return missing


def _add_request(original: Any, capture: Capture) -> Any:
    @guard.harmless("add_request")
    def after(processor: Any, request: Any) -> None:
        state = processor.request_states.get(request.request_id)
        if state is not None and not hasattr(state, FLIGHT):
            flight = capture.flight_began(request.trace_headers)
            setattr(state, FLIGHT, flight)
            if state.stats is not None:
                setattr(state.stats, FLIGHT, flight)

    def add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, request, *args, **kwargs)
        after(self, request)
        return result

    return add_request


def _finish(original: Any, capture: Capture) -> Any:
    @guard.harmless("finish_request")
    def before(state: Any) -> None:
        flight: Flight | None = getattr(state, FLIGHT, None)
        if flight is not None:
            capture.flight_left(flight, state)

    def _finish_request(self: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        before(state)
        return original(self, state, *args, **kwargs)

    return _finish_request


def _finished(original: Any, capture: Capture) -> Any:
    @guard.harmless("finished")
    def after(state: Any, reason: Any) -> None:
        flight: Flight | None = getattr(state, FLIGHT, None)
        if flight is not None:
            capture.flight_ended(flight, state, _OUTCOMES.get(str(reason), "error"))

    def _update_stats_from_finished(
        self: Any, state: Any, reason: Any, *args: Any, **kwargs: Any
    ) -> Any:
        result = original(self, state, reason, *args, **kwargs)
        after(state, reason)
        return result

    return _update_stats_from_finished


def _abort_requests(original: Any, capture: Capture) -> Any:
    @guard.harmless("abort_requests")
    def after(before: dict[str, Any], aborted: list[str]) -> None:
        for request_id in aborted:
            state = before.get(request_id)
            flight: Flight | None = getattr(state, FLIGHT, None)
            if flight is not None:
                capture.flight_ended(flight, state, "abort")

    def abort_requests(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The ids may be a parent's, or external, or an iterator that is read but once:
        # what was there before tells all of them apart afterwards.
        before = dict(self.request_states)
        result = original(self, *args, **kwargs)
        after(before, result)
        return result

    return abort_requests


def _events(original: Any, capture: Capture) -> Any:
    @guard.harmless("events")
    def note(events: list[Any], flight: Flight) -> None:
        for event in events:
            kind = event.type.name
            if kind == "PREEMPTED":
                flight.preempted_at.append(event.timestamp)
            elif kind == "SCHEDULED" and flight.preempted_at:
                flight.resumed_at.append(event.timestamp)

    def update_from_events(
        self: Any,
        req_id: str,
        events: list[Any],
        is_prefilling: bool,
        req_stats: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        flight = getattr(req_stats, FLIGHT, None)
        if flight is not None:
            note(events, flight)
        return original(self, req_id, events, is_prefilling, req_stats, *args, **kwargs)

    return update_from_events


def _refused(original: Any, capture: Capture) -> Any:
    @guard.harmless("refused")
    def note(reason: Any) -> None:
        # Called in the task that serves the exchange, before it is answered.
        exchange = current.get()
        if exchange is not None:
            exchange.refused = str(reason)

    def record_admission_rejection(self: Any, reason: Any, *args: Any, **kwargs: Any) -> Any:
        note(reason)
        return original(self, reason, *args, **kwargs)

    return record_admission_rejection
