"""What stood in the way of requests in the engine's queue.

Once a step the scheduler decides who joins the batch. What kept the queue from moving then
holds until it decides again, and is added to a running sum: what a request waited for is a
difference of two entries, and a request costs nothing while it waits. Only those that are
not eligible themselves are noted one by one, as that begins and as it ends.

Pure: the clock's readings come in as arguments, all of one monotonic clock.
"""

from collections.abc import Container, Set
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from tailspan_vllm.request.parts import QueueParts


class Obstacle(IntEnum):
    """What keeps the queue from moving: places in the running sums, as in `QueueParts`."""

    SEATS = 0
    KV = 1
    BUDGET = 2
    HELD = 3


class Waited(NamedTuple):
    """A wait that is over, by admission or by leaving."""

    queued: float
    parts: QueueParts


@dataclass(slots=True)
class _Wait:
    """One request in the queue."""

    queued: float
    before: list[float] = field(default_factory=list)
    """The sums when it could first have been admitted, and what of them was not its own."""
    held_s: float = 0.0
    held_since: float = 0.0
    at_hold: list[float] | None = None
    """The sums when it was found not eligible; None while it is."""


class Queue:
    """The queue of one engine."""

    def __init__(self) -> None:
        self._sums = [0.0] * len(Obstacle)
        self._obstacle: Obstacle | None = None
        self._looked_at = 0.0
        self._waits: dict[str, _Wait] = {}
        self._new: list[_Wait] = []
        self._held: Set[str] = frozenset()

    def __len__(self) -> int:
        return len(self._waits)

    def joined(self, request_id: str, at: float) -> None:
        """A request has come."""
        wait = self._waits[request_id] = _Wait(at)
        self._new.append(wait)

    def keep(self, alive: Container[str]) -> None:
        """Remove all requests but these: the hooks missed that they left."""
        for request_id in [each for each in self._waits if each not in alive]:
            del self._waits[request_id]

    def left(self, request_id: str, at: float) -> Waited | None:
        """What a request waited for that gave up; None where its coming was not seen."""
        if request_id not in self._waits:
            return None
        self._elapse(at)
        return self._over(request_id, at)

    def decided(self, at: float, obstacle: Obstacle | None, held: Set[str]) -> None:
        """The scheduler has decided; `admitted` is to follow for those whom it let in.

        Args:
            at: when it began to.
            obstacle: what keeps those who are eligible waiting from now on; None where
                there are none of them.
            held: those who are not eligible themselves.
        """
        self._elapse(at)
        self._obstacle, sums = obstacle, self._sums
        for wait in self._new:
            wait.before = sums
        self._new.clear()
        if held or self._held:
            for request_id in held - self._held:
                if wait_of := self._waits.get(request_id):
                    wait_of.held_since, wait_of.at_hold = at, sums
            for request_id in self._held - held:
                if wait_of := self._waits.get(request_id):
                    self._release(wait_of, at)
            self._held = held

    def admitted(self, request_id: str, at: float) -> Waited | None:
        """What a request waited for; None where its coming was not seen."""
        return self._over(request_id, at)

    def _elapse(self, at: float) -> None:
        """What has stood in the way since the last look has done so up to now."""
        if self._obstacle is not None:
            # A new list: the one there is may be what somebody's wait began with.
            self._sums = self._sums.copy()
            self._sums[self._obstacle] += at - self._looked_at
        self._looked_at = at

    def _over(self, request_id: str, at: float) -> Waited | None:
        wait = self._waits.pop(request_id, None)
        if wait is None:
            return None
        self._release(wait, at)
        # Who came after the last decision has waited for the next one alone.
        since = wait.before or self._sums
        seats, kv, budget, held = (
            now - before for now, before in zip(self._sums, since, strict=True)
        )
        held += wait.held_s
        step = at - wait.queued - seats - kv - budget - held
        return Waited(wait.queued, QueueParts(seats, kv, budget, held, max(0.0, step)))

    def _release(self, wait: _Wait, at: float) -> None:
        """What stood in the way of others while it was not eligible is not its own."""
        if wait.at_hold is None:
            return
        wait.held_s += at - wait.held_since
        wait.before = [
            before + now - then
            for before, now, then in zip(wait.before, self._sums, wait.at_hold, strict=True)
        ]
        wait.at_hold = None
