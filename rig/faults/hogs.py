"""Processes that take the machine's cores from the server."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rig.faults.fault import Fault, Server
from rig.faults.traffic import Traffic

# Ends with whoever started it, so that none is left to eat the machine.
_HOG = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    sum(range(100_000))
"""


@dataclass(frozen=True, slots=True)
class Hogs:
    """So many of them."""

    count: int

    @contextmanager
    def __call__(self, server: Server, draw: random.Random) -> Iterator[None]:
        """While it is open."""
        # In sessions of their own: a Linux that shares the cores out by session gives all hogs
        # of one session no more than the server.
        command = [sys.executable, "-c", _HOG, str(os.getpid())]
        hogs = [subprocess.Popen(command, start_new_session=True) for _ in range(self.count)]
        try:
            yield
        finally:
            for hog in hogs:
                hog.kill()
                hog.wait()


def noisy_neighbour(draw: random.Random, severity: float, usual: Traffic) -> Fault:
    """Two hogs per core, at the server's own priority."""
    hogs = Hogs(max(1, round(2 * (os.cpu_count() or 1) * severity)))
    return Fault(
        cause="noisy_neighbour",
        metric="tpot",
        usual=usual,
        under=usual,
        disturb=hogs,
        notes={"hogs": hogs.count},
    )
