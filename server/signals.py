"""Handle signals. The first signal requests an orderly stop. A second signal ends the process."""

import asyncio
import os
import signal
from collections.abc import Callable

REPEAT_S = 1.0
"""A second signal is ignored for this many seconds. The terminal and a parent process may each send
a signal for one stop."""


def stop_on_signals(at_once: Callable[[], None]) -> asyncio.Event:
    """Return an event that is set by SIGINT, SIGTERM or SIGHUP.

    After a second signal, `at_once` is called on the event loop, and the process ends.
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
        # nohup ignores SIGHUP.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal, number)
    return stop
