"""The reading thread's work: the engines' link, ended requests, samples. Never the network."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from opentelemetry.sdk.resources import Resource

from tailspan_vllm import guard, names
from tailspan_vllm.engine_state.cpu_time import Processors
from tailspan_vllm.engine_state.state import EngineState, Number, Sample
from tailspan_vllm.export.account_join import EngineJoin
from tailspan_vllm.export.span_queue import FAILED, Backlog, Drops
from tailspan_vllm.otlp.encoder import encode_span
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.in_flight import InFlight, LastStep
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.request.record_builder import Tell

JOIN_S: Final = 2.0
"""How long a record waits for the engine's account of it."""

SAMPLES_KEPT: Final = 600
"""Samples kept while the collector is away; the oldest are dropped, for totals are cumulative."""

_NO_RESOURCE: Final = Resource({})
"""Spans are encoded before they are grouped under the replica's resource."""


class Reader:
    """Takes in what the engine cores send, completes requests, samples the engines.

    Args:
        join: the front end's end of the link.
        drops: where to count what fails.
    """

    def __init__(self, join: EngineJoin, drops: Drops) -> None:
        self.engines: dict[int, EngineState] = {}
        """Sampled each second; engines known by the link alone are added."""
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_KEPT)
        self.in_flight: Callable[[], InFlight | None] = lambda: None
        """The requests in flight; None if this process cannot know them."""
        self._last_step = LastStep()
        self._join = join
        self._drops = drops
        self._processors = Processors()

    @property
    def connected(self) -> bool:
        """Whether an engine is at the other end of the link."""
        return self._join.connected

    @guard.harmless("read_link")
    def read_link(self) -> None:
        """Take in what has come."""
        self._join.read()

    @guard.harmless("close_link")
    def close(self) -> None:
        """Close the link."""
        self._join.close()

    def complete(self, backlogs: Iterable[Backlog], closing: bool) -> None:
        """Encode the requests of which all is known that will be.

        Args:
            backlogs: where they wait.
            closing: whether nothing more will come.
        """
        for backlog in backlogs:
            while backlog.ended:
                self._make(backlog, *backlog.ended.popleft())
            now, waiting = time.monotonic(), []
            for ended_at, record in backlog.records:
                expired = closing or now - ended_at >= JOIN_S
                # The first requests may end before the two ends of the link have met.
                unlinked = record.awaits_account and not self._join.connected
                if (expired or not unlinked) and (self._applied(record) or expired):
                    self._encode(backlog, record)
                else:
                    waiting.append((ended_at, record))
            backlog.records = waiting

    def _make(self, backlog: Backlog, ended_at: float, tell: Tell) -> None:
        try:
            backlog.records.append((ended_at, tell()))
        except Exception:
            guard.note_failure("tell")
            self._drops.add(1, FAILED)

    def _applied(self, record: RequestRecord) -> bool:
        try:
            return self._join.apply(record)
        except Exception:
            guard.note_failure("join")
            return True

    def _encode(self, backlog: Backlog, record: RequestRecord) -> None:
        try:
            span = encode_span(span_of(record, _NO_RESOURCE))
        except Exception:
            guard.note_failure("span")
            self._drops.add(1, FAILED)
        else:
            backlog.add(span)

    @guard.harmless("look_at_engines")
    def look_at_engines(self, sampled: bool) -> None:
        """Bring the engines' states up to date.

        Args:
            sampled: whether to keep a sample of each.
        """
        for state in self._join.unclaimed(self.engines):
            self.engines[state.engine] = state
        now_unix_ns = time.time_ns()
        own: dict[str, Number] = dict(self._processors.host())
        failures, drops = dict(guard.failures), self._drops.snapshot()
        states = list(self.engines.values())
        for state in states:
            state.catch_up()
            self._join.tell(state)
        unfinished = self._last_step.gauges(states, self.in_flight())
        for state in states:
            for name in names.OF_THE_UNFINISHED:
                state.gauges.pop(name, None)
            state.gauges |= unfinished
            state.totals |= self._processors.core(self._join.process_of(state.engine))
            if (cpus := os.cpu_count()) is not None:
                state.gauges[names.HOST_CPUS] = cpus
            if sampled:
                self.samples.append(Sample(now_unix_ns, state.standing(own, failures, drops)))
