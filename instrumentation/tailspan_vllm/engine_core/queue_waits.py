"""Measures how long each obstacle kept requests in the engine's queue.

The obstacle of a scheduling decision applies until the next decision. The time between the two
decisions is added to the obstacle's running sum. A request's wait is the increase of the sums while
it waits, so a step needs no work per waiting request. A request is ineligible as long
as the scheduler cannot add it to the batch even if there is space, for example because its KV cache
is not loaded yet. Only ineligible time is recorded per request.

This module is pure: callers pass timestamps of one monotonic clock.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from tailspan_vllm.request.parts import HeldParts, RequestQueueParts


class Obstacle(IntEnum):
    """The values are indices in `RequestQueueParts`."""

    SEATS = 0
    KV = 1
    BUDGET = 2
    HELD = 3


class HoldReason(IntEnum):
    """The reasons why a request is not eligible. All values except `OTHER` are indices in
    `HeldParts`."""

    KV_LOAD = 0
    GRAMMAR = 1
    ADAPTER = 2
    OTHER = 3


class QueueWait(NamedTuple):
    """A wait that has ended. `held` is None if the reasons are unknown."""

    queued: float
    parts: RequestQueueParts
    held: HeldParts | None = HeldParts(0.0, 0.0, 0.0)


@dataclass(slots=True)
class _Wait:
    queued: float
    before: list[float] = field(default_factory=list)
    """`Queue._sums` at the first decision after the arrival, plus the increase of the sums while
    the request was ineligible."""
    hold: HoldReason | None = None
    held_s: list[float] = field(default_factory=lambda: [0.0] * len(HoldReason))
    """Ineligible seconds for each `HoldReason`, without the current ineligible period."""
    held_since: float = 0.0
    at_hold: list[float] = field(default_factory=list)
    """`Queue._sums` at the time when the request became ineligible."""


class Queue:
    """The queue of one engine."""

    def __init__(self) -> None:
        self._sums = [0.0] * len(Obstacle)
        self._obstacle: Obstacle | None = None
        self._looked_at = 0.0
        self._waits: dict[str, _Wait] = {}
        self._new: list[_Wait] = []
        self._held: Mapping[str, HoldReason] = {}
        self.holds_known = True
        """Whether `decided` receives real reasons."""

    def __len__(self) -> int:
        return len(self._waits)

    def joined(self, request_id: str, at: float) -> None:
        """Add a request."""
        wait = self._waits[request_id] = _Wait(at)
        self._new.append(wait)

    def keep(self, alive: Container[str]) -> None:
        """Remove requests that are not in `alive`, because the hooks have missed their ends."""
        for request_id in [each for each in self._waits if each not in alive]:
            del self._waits[request_id]

    def left(self, request_id: str, at: float) -> QueueWait | None:
        """Remove an aborted request and return its wait, or None if it was never added."""
        if request_id not in self._waits:
            return None
        self._elapse(at)
        return self.admitted(request_id, at)

    def decided(
        self, at: float, obstacle: Obstacle | None, held: Mapping[str, HoldReason]
    ) -> dict[str, HoldReason]:
        """Record a scheduling decision. The caller then calls `admitted` for each admitted request.

        Args:
            obstacle: the obstacle from now on, or None if no request waits.
            held: the reason of each ineligible request.

        Returns: the new and the changed reasons. The keys are request ids.
        """
        self._elapse(at)
        self._obstacle, sums = obstacle, self._sums
        for wait in self._new:
            wait.before = sums
        self._new.clear()
        if held == self._held:
            return {}
        changed = dict(held.items() - self._held.items())
        for request_id, hold in changed.items():
            if wait_of := self._waits.get(request_id):
                if wait_of.hold is None:
                    wait_of.at_hold = sums
                else:
                    wait_of.held_s[wait_of.hold] += at - wait_of.held_since
                wait_of.hold, wait_of.held_since = hold, at
        for request_id in self._held.keys() - held.keys():
            if wait_of := self._waits.get(request_id):
                self._release(wait_of, at)
        self._held = held
        return changed

    def admitted(self, request_id: str, at: float) -> QueueWait | None:
        """Remove an admitted request and return its wait, or None if it was never added."""
        wait = self._waits.pop(request_id, None)
        if wait is None:
            return None
        self._release(wait, at)
        # The list is empty if no decision was made since the arrival.
        since = wait.before or self._sums
        seats, kv, budget, held = (
            now - before for now, before in zip(self._sums, since, strict=True)
        )
        held += sum(wait.held_s)
        step = at - wait.queued - seats - kv - budget - held
        parts = RequestQueueParts(seats, kv, budget, held, max(0.0, step))
        known = HeldParts(*wait.held_s[: HoldReason.OTHER]) if self.holds_known else None
        return QueueWait(wait.queued, parts, known)

    def _elapse(self, at: float) -> None:
        if self._obstacle is not None:
            # Replace the list, because `_Wait.before` of some requests refers to it.
            self._sums = self._sums.copy()
            self._sums[self._obstacle] += at - self._looked_at
        self._looked_at = at

    def _release(self, wait: _Wait, at: float) -> None:
        """Mark a request as eligible. Its ineligible time is counted only in `held_s`."""
        if wait.hold is None:
            return
        wait.held_s[wait.hold] += at - wait.held_since
        wait.before = [
            before + now - then
            for before, now, then in zip(wait.before, self._sums, wait.at_hold, strict=True)
        ]
        wait.hold = None
