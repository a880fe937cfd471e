"""Measures unfinished requests.

There are three measurements: the number of requests, the age of the oldest request, and the time
without a step. If an engine hangs, no request ends and no span is sent. Only these gauges show the
hang.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState, Number
from tailspan_vllm.request.exchange import Flight

_PROGRESS = (names.STEPS, names.DECODE_TOKENS, names.PREFILL_TOKENS)
"""Totals that grow with each step."""

STOPPED_S: Final = 10.0
"""If readings are further apart, this process itself was stopped. That is not a hang."""


class InFlight:
    """Requests to the engine whose clients still wait for the response."""

    def __init__(self) -> None:
        self._flights: dict[Flight, None] = {}
        self.since = 0.0
        """When the number of requests last rose from 0."""

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, flight: Flight) -> bool:
        return flight in self._flights

    def oldest(self, most: int) -> list[Flight]:
        """Return at most `most` of the oldest requests, or [] if the requests keep changing."""
        for _ in range(3):
            with suppress(RuntimeError):
                return list(islice(self._flights, most))
        return []

    def add(self, flight: Flight) -> None:
        """Add a request that enters the engine."""
        if not self._flights:
            self.since = flight.added
        self._flights[flight] = None

    def remove(self, flight: Flight) -> None:
        """Remove a request that has ended; idempotent."""
        self._flights.pop(flight, None)

    def remove_all(self, flights: Iterable[Flight]) -> None:
        """Remove the requests of a client that has disconnected."""
        for flight in flights:
            self._flights.pop(flight, None)

    def begun_by_engine(self) -> dict[int | None, float]:
        """Maps each engine to the monotonic time at which its oldest request entered. The key None
        stands for requests without a chosen engine."""
        found: dict[int | None, float] = {}
        for flight in self.oldest(len(self._flights)):
            found.setdefault(flight.engine, flight.added)
        return found

    def oldest_s(self, now: float) -> float:
        """The age in seconds, or 0 without requests."""
        for oldest in self.oldest(1):
            begun = oldest.added if oldest.exchange is None else oldest.exchange.received
            return max(0.0, now - begun)
        return 0.0


class LastStep:
    """Measures the time since this process last received a step of each engine with requests.

    If it is unknown which engines have requests, the newest step of any engine counts for all
    engines. Without this rule, an idle engine would seem to hang.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, ...]] = {}
        self._at: dict[int, float] = {}
        self._since: dict[int, float] = {}
        """Monotonic time since which each engine has had requests without interruption."""
        self._begun = self._looked = time.monotonic()

    def gauges(
        self, states: Sequence[EngineState], in_flight: InFlight | None
    ) -> dict[int, dict[str, Number]]:
        """The gauges of each engine. Call this once a second. `in_flight` is None if requests are
        not recorded."""
        now = time.monotonic()
        if now - self._looked > STOPPED_S:
            self._begun = now
        self._looked = now
        for state in states:
            mark = (state.load, *(state.totals.get(name) for name in _PROGRESS))
            seen = self._seen.get(state.engine)
            # Compare by identity, because the statistics of two steps may be equal.
            if seen is None or seen[0] is not mark[0] or seen[1:] != mark[1:]:
                self._seen[state.engine] = mark
                self._at[state.engine] = now
        if in_flight is None:
            return {}
        all_engines: dict[str, Number] = {
            names.IN_FLIGHT: len(in_flight),
            names.OLDEST_REQUEST_AGE: in_flight.oldest_s(now),
        }
        gauges = {state.engine: dict(all_engines) for state in states}
        for engine, since in self._waiting_since(states, in_flight).items():
            if engine in gauges:
                gauges[engine][names.LAST_STEP_AGE] = max(0.0, now - max(self._begun, since))
        return gauges

    def _waiting_since(
        self, states: Sequence[EngineState], in_flight: InFlight
    ) -> dict[int, float]:
        """Return, for each engine with requests, its last step or `_since`, whichever is later."""
        if not len(in_flight):
            self._since.clear()
            return {}
        begun = in_flight.begun_by_engine() if len(states) > 1 else {None: in_flight.since}
        known = {engine: at for engine, at in begun.items() if engine is not None}
        if not known:
            newest = max(self._at.values(), default=0.0)
            return {state.engine: max(newest, in_flight.since) for state in states}
        # `_since` does not change when the oldest request ends. So a hang is detected even if
        # clients give up early.
        self._since = {engine: self._since.get(engine, at) for engine, at in known.items()}
        return {
            engine: max(self._at.get(engine, 0.0), since) for engine, since in self._since.items()
        }
