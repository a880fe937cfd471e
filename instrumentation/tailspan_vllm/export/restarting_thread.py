"""Runs daemon threads, and restarts them if they end unexpectedly."""

import threading
import time
from collections.abc import Callable
from typing import Final

from tailspan_vllm import guard

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
"""Longest pause before a restart, if a defect ends the thread each time."""


class RestartingThread:
    """A daemon thread that runs a function again whenever the function raises.

    Args:
        name: the thread's name, under which failures are counted.
        stop: set when the program ends.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], None],
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._run = run
        self._stop = stop
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._not_before = 0.0
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Return whether the thread is running."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def ensure(self) -> None:
        """Start the thread unless it is running. A forked child process must call this again."""
        with self._lock:
            if self.alive or self._stop.is_set() or self._clock() < self._not_before:
                return
            self._not_before = self._clock() + FIRST_PAUSE_S
            thread = threading.Thread(target=self._keep, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads can be started, or the program is ending
                guard.note_failure(self._name)
                return
            self._thread = thread

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, unless it is the current thread."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(timeout_s, 0.0))

    def _keep(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            begun = self._clock()
            try:
                self._run()
            except BaseException:  # also SystemExit, so that no library can end this thread
                guard.note_failure(self._name)
            else:
                return
            if self._clock() - begun > LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            if self._stop.wait(pause_s):
                return
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
