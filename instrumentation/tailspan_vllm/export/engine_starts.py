"""Sends each engine start until the collector accepts or refuses it, and again after an outage.

The repeated event is identical, so the receiver can discard it.
"""

import time
from collections.abc import Callable, Iterable

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk.resources import Resource

from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.export.retry import Backoff
from tailspan_vllm.export.transport import ExportResponse
from tailspan_vllm.otlp.log_events import EngineStartEvent, message_of, start_of

Export = Callable[[ExportLogsServiceRequest], ExportResponse]


class EngineStarts:
    """Use this object only on one thread. `clock_unix_ns` returns the timestamp of a configuration
    change."""

    def __init__(
        self,
        export: Export,
        clock_unix_ns: Callable[[], int] = time.time_ns,
        backoff: Backoff | None = None,
    ) -> None:
        self._export = export
        self._clock_unix_ns = clock_unix_ns
        self._in_force: dict[int, EngineStartEvent] = {}
        self._due: set[int] = set()
        self._backoff = backoff or Backoff()

    def resend(self) -> None:
        """Send all starts again. The collector may have lost them, or may be a new collector."""
        self._due.update(self._in_force)

    def send(self, states: Iterable[EngineState], resource: Resource, now: float) -> None:
        """Send the starts that are due, except during a retry pause. `now` is in monotonic
        seconds."""
        for state in states:
            self._notice(state)
        for engine in sorted(self._due):
            if not self._backoff.due(now):
                return
            # Each message has only one event, so that a refusal affects only this event.
            outcome = self._export(message_of([self._in_force[engine]], resource))
            if outcome.retryable:
                self._backoff.wait(now, outcome.wait_s)
                return
            self._backoff.reset()
            self._due.discard(engine)

    def _notice(self, state: EngineState) -> None:
        known = self._in_force.get(state.engine)
        if state.config is None or (
            known is not None
            and known.config == state.config
            and known.started_unix_ns == state.started_unix_ns
        ):
            return
        restarted = known is None or known.started_unix_ns != state.started_unix_ns
        at_unix_ns = state.started_unix_ns if restarted else self._clock_unix_ns()
        self._in_force[state.engine] = start_of(state, state.config, at_unix_ns)
        self._due.add(state.engine)
