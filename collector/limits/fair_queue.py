"""A queue that shares reading time fairly between senders.

Messages are read one at a time, and one message may take a hundred times as long as another. In
order of arrival, a few expensive messages of one sender would delay all others. Here the sender
that has used the least time goes first, so that a message waits for the one being read and at
most one of each other sender. A sender whose rows wait for their commit is passed over until they
are committed, because the rows of others are committed in the same transaction.

Source: start-time fair queueing, Goyal et al., SIGCOMM 1996, with the measured time for the
length.
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
    """Reading time used, on a scale that is comparable between senders with work."""
    waiting: deque[_Work] = field(default_factory=deque)


class FairQueue:
    """Work by sender. Thread-safe; forgets a sender that has no work.

    Args:
        max_load: a sender with this load or more is skipped until some of it is removed.
        clock: monotonic seconds.
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
        """`used_s` of the sender that was served last; a new sender starts with this value."""

    def put(self, peer: str, work: Callable[[], Any]) -> Future[Any]:
        """Add work; the future receives its result."""
        done: Future[Any] = Future()
        with self._lock:
            sender = self._senders.setdefault(peer, _Sender(self._now_s))
            sender.waiting.append((work, done))
        return done

    def load(self, peer: str, more: int) -> None:
        """Add to a sender's load, or remove from it."""
        with self._lock:
            self._loads[peer] += more
            if not self._loads[peer]:
                del self._loads[peer]

    def run(self) -> None:
        """Do the work of all senders whose load allows it. Call it after `put` and `load`."""
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
            # The sender stays registered until now, so that this time counts for its next message.
            with self._lock:
                sender.used_s += self._clock() - began
                if not sender.waiting:
                    self._senders.pop(peer, None)
        if result is not _NO_RESULT:
            done.set_result(result)
        return True

    def refuse_all(self, error: Callable[[], Exception]) -> None:
        """Fail all work that has not begun."""
        with self._lock:
            waiting = [done for each in self._senders.values() for _, done in each.waiting]
            for each in self._senders.values():
                each.waiting.clear()
        for done in waiting:
            if done.set_running_or_notify_cancel():
                done.set_exception(error())
