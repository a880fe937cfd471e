"""Reads the engines' messages, completes requests and samples engines, without the network."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from opentelemetry.sdk.resources import Resource

from tailspan_vllm import guard, names
from tailspan_vllm.engine_state.cpu_time import Processors
from tailspan_vllm.engine_state.state import EngineState, EngineStateSample, Number
from tailspan_vllm.export.account_join import AccountJoin
from tailspan_vllm.export.span_queue import FAILED, Drops, SpanQueue
from tailspan_vllm.otlp.encoder import encode_span
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.otlp.start_span import start_span
from tailspan_vllm.request.in_flight import InFlight, LastStep
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.request.record_builder import BuildRecord

JOIN_S: Final = 2.0
"""The maximum time that a request's record waits for its account (the step ledger's result)."""

CPUS: Final = os.cpu_count()

SAMPLES_LIMIT: Final = 600
"""Dropping the oldest samples loses no counts, because totals are cumulative."""

_NO_RESOURCE: Final = Resource({})
"""The resource is empty, because the export adds the replica's resource."""


class EngineCoreReader:
    """Reads the engine cores' messages, completes requests, and samples the engines."""

    def __init__(self, join: AccountJoin, drops: Drops) -> None:
        self.engines: dict[int, EngineState] = {}
        """The engines to sample, by number, including those found through the link."""
        self.samples: deque[EngineStateSample] = deque(maxlen=SAMPLES_LIMIT)
        self.is_removed: Callable[[int], bool] = lambda engine: False
        """Whether the server no longer has the engine with this number."""
        self.in_flight: Callable[[], InFlight | None] = lambda: None
        """None if this process does not capture requests."""
        self.served: float | None = None
        """When the HTTP server was ready, in monotonic seconds."""
        self.before: Callable[[], Mapping[str, float] | None] = dict
        """Seconds of the parts before the first process, by name; None until known."""
        self.messages = 0
        self.connected = False
        """Whether the connections to all engines were open at the last read."""
        self._started: set[int] = set()
        self._last_step = LastStep()
        self._set_back: dict[int, EngineStateSample] = {}
        """The first sample of each engine after the clock was set back to before its start."""
        self._join = join
        self._drops = drops
        self._processors = Processors()

    @guard.catch_exceptions("read_link")
    def read_link(self, look: bool = False) -> None:
        """Read the messages on the link. If `look` is set, connect to new engines first."""
        self.messages = 0
        self.messages = self._join.read(look)
        self.connected = self._join.connections >= max(1, len(self._sampled()))

    @guard.catch_exceptions("close_link")
    def close(self) -> None:
        """Close the link."""
        self._join.close()

    def complete(self, queues: Iterable[SpanQueue], closing: bool) -> None:
        """Encode the ended requests that no longer wait for their account. `closing` is True in the
        last call."""
        for queue in queues:
            while queue.ended:
                self._make(queue, *queue.ended.popleft())
            now, waiting = time.monotonic(), []
            for ended_at, record in queue.records:
                expired = closing or now - ended_at >= JOIN_S
                # The first requests may end before the front end has connected to the engine.
                unlinked = record.awaits_account and not self._join.connections
                if (expired or not unlinked) and (self._applied(record) or expired):
                    self._encode(queue, record)
                else:
                    waiting.append((ended_at, record))
            queue.records = waiting

    def _make(self, queue: SpanQueue, ended_at: float, build: BuildRecord) -> None:
        try:
            queue.records.append((ended_at, build()))
        except Exception:
            guard.note_failure("build_record")
            self._drops.add(1, FAILED)

    def _applied(self, record: RequestRecord) -> bool:
        try:
            return self._join.apply(record)
        except Exception:
            guard.note_failure("join")
            return True

    def _encode(self, queue: SpanQueue, record: RequestRecord) -> None:
        try:
            span = encode_span(span_of(record, _NO_RESOURCE))
        except Exception:
            guard.note_failure("span")
            self._drops.add(1, FAILED)
        else:
            queue.add(span)

    @guard.catch_exceptions("report_starts")
    def report_starts(self, queue: SpanQueue, closing: bool = False) -> None:
        """Queue a span of each engine's start after the engine core has reported at its first step.

        The last call (`closing`) does not wait for the parts before the first process.
        """
        for state in self.engines.values():
            instants = self._join.start_of(state.engine)
            if instants is None or state.engine in self._started:
                continue
            before = self.before()
            if before is None and not closing:
                return
            self._started.add(state.engine)
            span = start_span(state, instants, self.served, os.environ, before or {})
            if span is not None:
                queue.add(encode_span(span))

    @guard.catch_exceptions("look_at_engines")
    def look_at_engines(self, sampled: bool) -> None:
        """Update the states of the engines. If `sampled` is set, queue a sample of each engine."""
        for state in self._join.unclaimed(self.engines):
            self.engines[state.engine] = state
        now_unix_ns = time.time_ns()
        own: dict[str, Number] = dict(self._processors.host())
        failures, drops = dict(guard.failures), self._drops.snapshot()
        states = self._sampled()
        for state in states:
            state.gauges = state.gauges.copy()
            state.catch_up()
            self._join.add_sample(state)
        unfinished = self._last_step.gauges(states, self.in_flight())
        for state in states:
            for name in names.UNFINISHED_GAUGES:
                state.gauges.pop(name, None)
            state.gauges |= unfinished.get(state.engine, {})
            state.totals |= self._processors.core(self._join.process_of(state.engine))
            if CPUS is not None:
                state.gauges[names.HOST_CPUS] = CPUS
            if sampled:
                snapshot = state.snapshot(own, failures, drops)
                self.samples.append(
                    EngineStateSample(now_unix_ns, self._after_start(snapshot, now_unix_ns))
                )

    def _sampled(self) -> list[EngineState]:
        return [state for state in self.engines.values() if not self.is_removed(state.engine)]

    def _after_start(self, snapshot: EngineState, now_unix_ns: int) -> EngineState:
        """Begin the totals anew if the clock was set back to before their start.

        The collector refuses a total whose start is later than its sample. A later start with the
        same totals would count them twice.
        """
        before = self._set_back.get(snapshot.engine)
        if now_unix_ns < (before.at_unix_ns if before else snapshot.started_unix_ns):
            before = self._set_back[snapshot.engine] = EngineStateSample(now_unix_ns, snapshot)
        return snapshot.since(before.state, before.at_unix_ns) if before else snapshot
