"""Stop on signals: the first signal requests an orderly stop, a second signal ends the process."""

import asyncio
import os
import signal
from collections.abc import Callable

REPEAT_S = 1.0
"""For this many seconds after the first signal, a second signal is ignored, because the terminal
and a parent process may both send the first signal."""


def stop_on_signals(at_once: Callable[[], None]) -> asyncio.Event:
    """Return an event that is set on Ctrl-C, on SIGTERM, or when the terminal is closed (SIGHUP).

    A second signal ends the process immediately, by the signal's default action.

    Args:
        at_once: called on the event loop before the second signal ends the process.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    signalled_at = 0.0

    def on_signal(number: signal.Signals) -> None:
        nonlocal signalled_at
        if not stop.is_set():
            signalled_at = loop.time()
            stop.set()
        elif loop.time() - signalled_at >= REPEAT_S:
            at_once()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Under nohup the process ignores SIGHUP, and must continue to ignore it.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal, number)
    return stop
