"""Divide the time for reading messages fairly between senders.

Some messages take a hundred times longer to read than others. The next message to read comes from
the sender with the least reading time so far. So a message waits for the message that is being
read, and for at most one message from each other sender. A sender with too many uncommitted rows is
skipped until they are committed, because its rows would delay the transaction that all senders
share. Source: start-time fair queueing (Goyal et al., SIGCOMM 1996), with the measured reading time
as the cost of a message.
"""

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

_Work = tuple[Callable[[], Any], Future[Any]]
_NO_RESULT: Final = object()


@dataclass(slots=True)
class _Sender:
    used_s: float
    """The time spent on reading this sender's messages. A new sender starts with the value of the
    sender that was served last."""
    waiting: deque[_Work] = field(default_factory=deque)


class FairQueue:
    """A queue of work (functions to call) for each sender. Thread-safe.

    Args:
        max_load: a sender with this many uncommitted rows is skipped.
    """

    def __init__(
        self, max_load: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_load = max_load
        self._clock = clock
        self._lock = threading.Lock()
        self._senders: dict[str, _Sender] = {}
        self._loads: Counter[str] = Counter()
        self._now_s = 0.0

    def put(self, peer: str, work: Callable[[], Any]) -> Future[Any]:
        """Queue work for a sender. Return a future for its result."""
        done: Future[Any] = Future()
        with self._lock:
            sender = self._senders.setdefault(peer, _Sender(self._now_s))
            sender.waiting.append((work, done))
        return done

    def load(self, peer: str, more: int) -> None:
        """Add `more`, which may be negative, to a sender's load (the number of its uncommitted
        rows)."""
        with self._lock:
            self._loads[peer] += more
            if not self._loads[peer]:
                del self._loads[peer]

    def has_room(self, peer: str) -> bool:
        """Whether a sender's load is below the limit."""
        with self._lock:
            return self._loads[peer] < self._max_load

    def has_work(self) -> bool:
        """Whether any sender may have queued work."""
        return bool(self._senders)

    def run(self) -> None:
        """Do the queued work of all senders below the load limit. Call after `put` and `load`."""
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        with self._lock:
            ready = {
                peer: each
                for peer, each in self._senders.items()
                if each.waiting and self._loads[peer] < self._max_load
            }
            if not ready:
                return False
            peer = min(ready, key=lambda name: ready[name].used_s)
            sender = ready[peer]
            self._now_s = sender.used_s
            work, done = sender.waiting.popleft()
        began = self._clock()
        result: Any = _NO_RESULT
        try:
            if done.set_running_or_notify_cancel():
                result = work()
        except BaseException as error:
            done.set_exception(error)
        finally:
            with self._lock:
                sender.used_s += self._clock() - began
                if not sender.waiting:
                    self._senders.pop(peer, None)
        if result is not _NO_RESULT:
            done.set_result(result)
        return True

    def refuse_all(self, error: Callable[[], Exception]) -> None:
        """Remove all queued work. Each of its futures gets an exception from `error`."""
        with self._lock:
            waiting = [done for each in self._senders.values() for _, done in each.waiting]
            for each in self._senders.values():
                each.waiting.clear()
        for done in waiting:
            if done.set_running_or_notify_cancel():
                done.set_exception(error())
