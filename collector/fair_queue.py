"""A queue that is fair between senders by the time their messages take.

Messages are read one at a time, and one message may take a hundred times as long as another. In
order of arrival, a few expensive messages of one sender would delay everybody. Here the sender
that has used the least time goes first, so that a message waits for the one being read and at
most one of each other sender.

Source: start-time fair queueing, Goyal et al., SIGCOMM 1996, with the measured time for the
length.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

_Work = tuple[Callable[[], Any], Future[Any]]
_NOTHING: Final = object()


@dataclass(slots=True)
class _Sender:
    used_s: float
    """Time used, on a scale on which all senders that have work can be compared."""
    waiting: deque[_Work] = field(default_factory=deque)


class FairQueue:
    """Work by sender. Thread-safe; forgets a sender that has no work.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._senders: dict[str, _Sender] = {}
        self._now_s = 0.0
        """The time used by the sender that was served last: where a new one begins."""

    def put(self, peer: str, work: Callable[[], Any]) -> Future[Any]:
        """Add work; the future gets its result."""
        done: Future[Any] = Future()
        with self._lock:
            sender = self._senders.setdefault(peer, _Sender(self._now_s))
            sender.waiting.append((work, done))
        return done

    def run_next(self) -> None:
        """Do the work that is next; without any, return at once."""
        with self._lock:
            waiting = {peer: each for peer, each in self._senders.items() if each.waiting}
            if not waiting:
                return
            peer = min(waiting, key=lambda name: waiting[name].used_s)
            sender = waiting[peer]
            self._now_s = sender.used_s
            work, done = sender.waiting.popleft()
        began = self._clock()
        result: Any = _NOTHING
        try:
            if done.set_running_or_notify_cancel():
                result = work()
        except BaseException as error:
            done.set_exception(error)
        finally:
            # The sender stays known until now, so that it pays for this before its next message.
            with self._lock:
                sender.used_s += self._clock() - began
                if not sender.waiting:
                    self._senders.pop(peer, None)
        if result is not _NOTHING:
            done.set_result(result)

    def refuse_all(self, error: Callable[[], Exception]) -> None:
        """Fail all work that has not begun."""
        with self._lock:
            waiting = [done for each in self._senders.values() for _, done in each.waiting]
            for each in self._senders.values():
                each.waiting.clear()
        for done in waiting:
            if done.set_running_or_notify_cancel():
                done.set_exception(error())
