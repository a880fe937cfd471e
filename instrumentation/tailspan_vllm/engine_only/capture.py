"""Captures the requests of an engine core whose front end is not Python.

This code runs on the engine core's thread, so it only copies values. The threads of `export.sender`
do all other work.
"""

import logging
import os
import time
from collections import deque
from functools import partial
from multiprocessing.util import Finalize
from typing import Any, Final

from tailspan_vllm import guard, names
from tailspan_vllm.engine_core.engine_reports import scheduler_load
from tailspan_vllm.engine_core.link_messages import Identity
from tailspan_vllm.engine_only.record_builder import Ended, record_of
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.engine_state.step_statistics import add_steps, missing_in
from tailspan_vllm.export.sender import OtlpSender
from tailspan_vllm.request.exchange import Flight
from tailspan_vllm.request.in_flight import InFlight
from tailspan_vllm.request.record import Outcome, RequestRecord
from tailspan_vllm.request.record_builder import PREEMPTIONS_LIMIT
from tailspan_vllm.request.text_limits import bounded_text
from tailspan_vllm.settings import Settings

logger = logging.getLogger("vllm.tailspan")

OPEN_LIMIT: Final = 65536

STEPS_LIMIT: Final = 4096
"""The maximum number of steps whose statistics are stored. The statistics are added up each
second."""

_OUTCOMES: Final[dict[str, Outcome]] = {
    "stop": "stop",
    "length": "length",
    "abort": "abort",
    "error": "error",
    "repetition": "stop",
}

_COUNTED_FROM_ZERO: Final = (
    names.PREFIX_CACHE_QUERIES,
    names.PREFIX_CACHE_HITS,
    names.ENGINE_PREEMPTIONS,
)


class EngineRequest(Flight):
    """One request of this engine core."""

    __slots__ = ("cached_tokens", "prefill")

    def __init__(self, traceparent: str | None, load: Any, engine: int) -> None:
        super().__init__(None, traceparent, load)
        self.engine = engine
        self.cached_tokens: int | None = None
        """None before the request joined the batch."""
        self.prefill: Any = None
        """vLLM's `PrefillStats`, which vLLM completes with the first output."""


class EngineCapture:
    """Captures the requests of an engine core. See `RequestListener`.

    Args:
        link: the token of this engine's own link.
        port: the server's port, or None if unknown.
    """

    def __init__(self, settings: Settings, engine: int, link: str, port: int | None) -> None:
        self.sender = OtlpSender(settings, link)
        self.in_flight = InFlight()
        self._engine = engine
        self._open: dict[str, EngineRequest] = {}
        self._engines: dict[int, EngineState] = {}
        self._state: EngineState | None = None
        self._steps: deque[Any] = deque(maxlen=STEPS_LIMIT)
        self._probed = False
        self.sender.observe(self._engines, lambda: None, lambda: self.in_flight, _not_reported)
        self.sender.serves_port(port)
        # A child process of `multiprocessing` ends without calling `atexit` handlers.
        Finalize(self, self.sender.close, exitpriority=10)

    @guard.catch_exceptions("engine_only.introduced")
    def introduced(self, identity: Identity) -> None:
        """Begin to sample the engine."""
        self._state = EngineState(
            engine=self._engine,
            started_unix_ns=identity.started_unix_ns,
            model=identity.model,
            config=identity.config,
            version=identity.version,
            arguments=identity.arguments,
            machine=identity.machine,
            totals=dict.fromkeys(_COUNTED_FROM_ZERO, 0),
            catch_up=self._catch_up,
        )
        self._engines[self._engine] = self._state
        self.sender.start()
        logger.info(
            "tailspan: the front end is not Python and loads no plugins, so engine core %d (process"
            " %d) reports its requests itself: from the queue to the last token, without HTTP"
            " status, route, tenant and delivery",
            self._engine,
            os.getpid(),
        )

    @guard.catch_exceptions("engine_only.began")
    def began(self, scheduler: Any, request: Any) -> None:
        """Record that a request enters the queue."""
        request_id = request.request_id
        if getattr(request, "resumable", False):
            return  # a session with streaming input is not one request
        if request_id in scheduler.requests or request_id in self._open:
            return  # this is the end of such a session, or the id of an unfinished request
        if len(self._open) >= OPEN_LIMIT:
            guard.count(
                "engine_only.open",
                f"tailspan: a request gets no span, because {OPEN_LIMIT} requests are unfinished",
            )
            return
        headers = getattr(request, "trace_headers", None)
        traceparent = bounded_text(str(headers.get("traceparent", ""))) if headers else None
        load = scheduler_load(scheduler)
        flight = self._open[request_id] = EngineRequest(traceparent, load, self._engine)
        adapter = getattr(request, "lora_request", None)
        if adapter is not None:
            flight.lora = bounded_text(adapter.lora_name)
        self.in_flight.add(flight)
        self.sender.expect()

    @guard.catch_exceptions("engine_only.admitted")
    def admitted(self, request: Any) -> None:
        """Record the number of cached prompt tokens, which vLLM discards later."""
        flight = self._open.get(request.request_id)
        prefill = getattr(request, "prefill_stats", None)
        if flight is not None and prefill is not None:
            flight.cached_tokens = prefill.num_cached_tokens
            flight.prefill = prefill

    @guard.catch_exceptions("engine_only.preempted")
    def preempted(self, request_id: str) -> None:
        """Record a preemption."""
        flight = self._open.get(request_id)
        if flight is not None and len(flight.preempted_at) < PREEMPTIONS_LIMIT:
            flight.preempted_at.append(time.monotonic())
        if self._state is not None:
            self._state.add(names.ENGINE_PREEMPTIONS, 1)

    @guard.catch_exceptions("engine_only.ended")
    def ended(self, request: Any) -> None:
        """Record that a request has finished or been aborted."""
        flight = self._open.pop(request.request_id, None)
        if flight is None:
            return
        self.in_flight.remove(flight)
        flight.ended = time.monotonic()
        flight.outcome = _OUTCOMES.get(str(request.get_finished_reason()), "error")
        output_tokens, prefill, flight.prefill = request.num_output_tokens, flight.prefill, None
        ended = Ended(
            request.request_id,
            request.num_prompt_tokens,
            flight.cached_tokens,
            getattr(prefill, "num_cache_creation_tokens", None) if output_tokens else None,
            output_tokens,
        )
        self.sender.submit(partial(record_of, flight, ended))

    @guard.catch_exceptions("engine_only.stepped")
    def stepped(self, results: Any) -> None:
        """Record a step's statistics, which vLLM gives to one of the front ends."""
        for outputs in results.values():
            stats = outputs.scheduler_stats
            if stats is not None:
                if self._state is not None:
                    self._state.load = stats
                if len(self._steps) == STEPS_LIMIT:
                    guard.count(
                        "steps_dropped",
                        "tailspan: dropped a step, so the engine totals are too low",
                    )
                self._steps.append(stats)

    @guard.catch_exceptions("engine_only.closed")
    def closed(self) -> None:
        """Forget all requests. Without the hooks, they would seem to hang."""
        self.in_flight.remove_all(self._open.values())
        self._open.clear()

    @guard.catch_exceptions("engine_only.catch_up")
    def _catch_up(self) -> None:
        state = self._state
        steps = [(self._steps.popleft(), None, None) for _ in range(len(self._steps))]
        if state is None or not steps:
            return
        if not self._probed and (lacking := missing_in(steps)):
            state.load, self._state = None, None
            guard.count(
                "add_steps",
                "tailspan: engine totals are not reported, because vLLM's statistics lack"
                f" {', '.join(lacking)}",
            )
            return
        self._probed = True
        add_steps(state, steps)


def _not_reported(flight: Flight, now: float) -> RequestRecord:
    """This is never called, because requests without an HTTP exchange are not reported while in
    flight."""
    raise NotImplementedError
