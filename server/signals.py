"""Stop on signals: the first requests an orderly stop, the second ends the process at once."""

import asyncio
import os
import signal
from collections.abc import Callable

ONE_WISH_S = 1.0
"""Seconds in which a second signal is ignored: the terminal and a parent may both send it."""


def stop_on_signals(at_once: Callable[[], None]) -> asyncio.Event:
    """Return an event that Ctrl-C, SIGTERM, and the end of the terminal set.

    A second signal ends the process at once, as the signal would have done.

    Args:
        at_once: called before that, from the event loop.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    asked_at = 0.0

    def asked(number: signal.Signals) -> None:
        nonlocal asked_at
        if not stop.is_set():
            asked_at = loop.time()
            stop.set()
        elif loop.time() - asked_at >= ONE_WISH_S:
            at_once()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Under nohup, ignore the end of the terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, asked, number)
    return stop
