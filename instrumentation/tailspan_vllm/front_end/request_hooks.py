"""The hooks inside vLLM's front end.

A hook runs once per request or scheduling event, never per step or token. A session with streaming
input (/v1/realtime) is not captured: it has a queue, a prefill and a first token for each input.

Source: vllm/v1/engine/output_processor.py and vllm/v1/metrics/stats.py, 0.12 to 0.33.
"""

from collections.abc import Callable, Collection
from inspect import iscoroutinefunction
from typing import Any

from tailspan_vllm import guard
from tailspan_vllm.front_end.capture import Capture
from tailspan_vllm.guard import Arguments, Hooks, Keywords
from tailspan_vllm.request.exchange import Flight, current
from tailspan_vllm.request.record import Outcome

FLIGHT = "_tailspan_flight"
"""The attribute of a `RequestState`, and of its stats, that contains the `Flight`. It is None for a
session with streaming input."""

OPEN = "_tailspan_open"
"""The attribute of an `OutputProcessor` that maps ids to the states of unfinished requests."""

_LEFT_OVER = 1024
"""If `OPEN` has more than this plus twice as many entries as vLLM's states, its stale entries are
removed."""

_OUTCOMES: dict[str, Outcome] = {
    "stop": "stop",
    "length": "length",
    "abort": "abort",
    "error": "error",
    "repetition": "stop",
}

_NOT_MISSED = {
    "_finish_request",  # not needed before 0.15
    "record_admission_rejection",  # does not exist before 0.32
}

_READ_OF_STATE = ("request_id", "lora_name", "prompt_len", "num_cached_tokens", "stats")
_READ_OF_STATS = (
    "arrival_time",
    "queued_ts",
    "scheduled_ts",
    "first_token_ts",
    "last_token_ts",
    "num_generation_tokens",
)
"""Attributes that `capture.py` reads. Checked at the first request."""

Wrap = Callable[[Any, Capture, Hooks], Any]


def install(capture: Capture) -> list[str]:
    """Wrap vLLM's methods. Return the hooks that do not fit this vLLM."""
    try:
        from vllm.v1.engine.output_processor import OutputProcessor
        from vllm.v1.metrics.loggers import StatLoggerManager
        from vllm.v1.metrics.stats import IterationStats
    except ImportError as error:
        capture.sees_engine = False
        return [str(error)]
    return install_on(
        capture, OutputProcessor, IterationStats, StatLoggerManager, _balancing_client()
    )


def _balancing_client() -> Any:
    """The class that chooses an engine for each request, or None."""
    try:
        from vllm.v1.engine.core_client import DPLBAsyncMPClient
    except ImportError:
        return None
    return DPLBAsyncMPClient


def install_on(
    capture: Capture,
    output_processor: Any,
    iteration_stats: Any,
    stat_logger_manager: Any,
    balancing_client: Any = None,
) -> list[str]:
    """Wrap the methods of these classes. See `install`."""

    def edge_alone() -> None:
        capture.sees_engine = False

    # If one of these hooks were missing, requests would be reported twice or never.
    requests = Hooks("requests, inside the front end", switched_off=edge_alone)
    targets: list[tuple[Any, str, Wrap, Hooks]] = [
        (output_processor, "add_request", _add_request, requests),
        (output_processor, "_update_stats_from_finished", _finished, requests),
        (output_processor, "_finish_request", _finish, Hooks("requests that fail")),
        (output_processor, "abort_requests", _abort_requests, Hooks("aborted requests")),
        (iteration_stats, "update_from_events", _events, Hooks("preemptions")),
        (stat_logger_manager, "record_admission_rejection", _refused, Hooks("reasons of refusals")),
    ]
    if balancing_client is not None:
        routed = Hooks("engines of requests")
        targets.append((balancing_client, "get_core_engine_for_request", _routed, routed))
    missing: list[str] = []
    wrapped: list[tuple[Any, str, Any]] = []
    for owner, name, wrap, hooks in targets:
        original = getattr(owner, name, None)
        if hasattr(original, "_tailspan") or (original is None and name in _NOT_MISSED):
            continue
        try:
            if not callable(original) or iscoroutinefunction(original):
                raise TypeError("no such method")
            wrapped.append((owner, name, wrap(original, capture, hooks)))
        except (TypeError, ValueError) as error:
            missing.append(f"{owner.__name__}.{name} ({error})")
            if hooks is requests:
                edge_alone()
    if capture.sees_engine:
        for owner, name, wrapper in wrapped:
            wrapper._tailspan = True
            setattr(owner, name, wrapper)
    return missing


def _add_request(original: Any, capture: Capture, hooks: Hooks) -> Any:
    request_of = guard.argument(original, 1, "request")
    probed = False

    def after(_: None, result: Any, args: Arguments, kwargs: Keywords) -> None:
        nonlocal probed
        processor, request = args[0], request_of(args, kwargs)
        state = processor.request_states.get(request.request_id)
        if state is None or hasattr(state, FLIGHT):
            return
        if getattr(request, "resumable", False):
            # Every input of a session except the last one is resumable.
            setattr(state, FLIGHT, None)
            return
        if not probed:
            lacking = guard.missing(state, _READ_OF_STATE)
            if getattr(state, "stats", None) is not None:
                lacking += guard.missing(state.stats, _READ_OF_STATS)
            if lacking:
                capture.flight_lost(current.get())
                hooks.switch_off(f"this vLLM lacks {', '.join(lacking)}")
                return
            probed = True
        try:
            flight = capture.flight_began(request.trace_headers, request.request_id)
            flight.copy_parameters(state)
            setattr(state, FLIGHT, flight)
            if state.stats is not None:
                setattr(state.stats, FLIGHT, flight)
            _open(processor)[request.request_id] = state
        except Exception:
            capture.flight_lost(current.get())
            raise

    return hooks.wrap(original, "add_request", after=after)


def _routed(original: Any, capture: Capture, hooks: Hooks) -> Any:
    request_of = guard.argument(original, 1, "request")

    def after(_: None, identity: Any, args: Arguments, kwargs: Keywords) -> None:
        engine = int.from_bytes(identity, "little")  # the engine's number, in two bytes
        capture.flight_routed(request_of(args, kwargs).request_id, engine)

    return hooks.wrap(original, "routed", after=after)


def _open(processor: Any) -> dict[str, Any]:
    """The states of unfinished requests. An abort removes requests from vLLM's own dictionary. A
    copy of vLLM's dictionary before each abort would take quadratic time."""
    states: dict[str, Any] | None = getattr(processor, OPEN, None)
    if states is None:
        states = {}
        setattr(processor, OPEN, states)
    alive = processor.request_states
    if len(states) > 2 * len(alive) + _LEFT_OVER:
        for request_id in [each for each in states if each not in alive]:
            del states[request_id]
    return states


def _forget(processor: Any, request_id: str) -> None:
    states: dict[str, Any] | None = getattr(processor, OPEN, None)
    if states is not None:
        states.pop(request_id, None)


def _finish(original: Any, capture: Capture, hooks: Hooks) -> Any:
    state_of = guard.argument(original, 1, "req_state")

    def before(args: Arguments, kwargs: Keywords) -> None:
        state = state_of(args, kwargs)
        _forget(args[0], state.request_id)
        flight: Flight | None = getattr(state, FLIGHT, None)
        if flight is not None:
            capture.flight_removed(flight, state)

    return hooks.wrap(original, "finish_request", before=before)


def _finished(original: Any, capture: Capture, hooks: Hooks) -> Any:
    state_of = guard.argument(original, 1, "req_state")
    reason_of = guard.argument(original, 2, "finish_reason")

    def after(_: None, result: Any, args: Arguments, kwargs: Keywords) -> None:
        state = state_of(args, kwargs)
        _forget(args[0], state.request_id)
        flight: Flight | None = getattr(state, FLIGHT, None)
        if flight is None:
            return
        try:
            outcome = _OUTCOMES.get(str(reason_of(args, kwargs)), "error")
            capture.flight_ended(flight, state, outcome)
        except Exception:
            if flight.exchange is not None and flight in flight.exchange.flights:
                capture.flight_lost(flight.exchange)
            raise

    return hooks.wrap(original, "finished", after=after)


def _abort_requests(original: Any, capture: Capture, hooks: Hooks) -> Any:
    def after(_: None, aborted: Any, args: Arguments, kwargs: Keywords) -> None:
        # The result contains the engine's own ids. The argument may contain other ids, and may be
        # an iterator.
        states = _open(args[0])
        if not isinstance(aborted, Collection):
            # Reading an iterator here would take its items from the caller.
            raise TypeError(f"abort_requests returned a {type(aborted).__name__}")
        for request_id in aborted:
            state = states.pop(request_id, None)
            flight: Flight | None = getattr(state, FLIGHT, None)
            if flight is not None:
                capture.flight_ended(flight, state, "abort")

    return hooks.wrap(original, "abort_requests", after=after)


def _events(original: Any, capture: Capture, hooks: Hooks) -> Any:
    events_of = guard.argument(original, 2, "events")
    stats_of = guard.argument(original, 4, "req_stats")

    def before(args: Arguments, kwargs: Keywords) -> None:
        flight: Flight | None = getattr(stats_of(args, kwargs), FLIGHT, None)
        if flight is None:
            return
        events = events_of(args, kwargs)
        if not isinstance(events, Collection):
            raise TypeError(f"events are a {type(events).__name__}")
        for event in events:
            kind = event.type.name
            if kind == "PREEMPTED":
                flight.preempted_at.append(event.timestamp)
            elif kind == "SCHEDULED" and flight.preempted_at:
                flight.resumed_at.append(event.timestamp)

    return hooks.wrap(original, "events", before=before)


def _refused(original: Any, capture: Capture, hooks: Hooks) -> Any:
    reason_of = guard.argument(original, 1, "reason")

    def before(args: Arguments, kwargs: Keywords) -> None:
        exchange = current.get()
        if exchange is not None:
            exchange.refused = str(reason_of(args, kwargs))

    return hooks.wrap(original, "refused", before=before)
