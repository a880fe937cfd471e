"""A fault that uses the machine's CPU cores."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from rig.faults.fault import DisturbedServer, ServerFault
from rig.faults.gpu_hog import gpu_hog, has_gpu
from rig.faults.traffic import PlannedTraffic

# The process ends when its parent process ends.
_HOG = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    sum(range(100_000))
"""


@contextmanager
def running_hogs(count: int) -> Iterator[None]:
    """Run a number of CPU-bound processes while the context is open."""
    # Linux can divide CPU time equally between sessions, so each process gets its own session. If
    # all processes were in one session, they would together get only as much CPU time as the
    # server.
    command = [sys.executable, "-c", _HOG, str(os.getpid())]
    hogs = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@dataclass(frozen=True, slots=True)
class Hogs:
    """A number of CPU-bound processes."""

    count: int

    def __call__(
        self, server: DisturbedServer, draw: random.Random
    ) -> AbstractContextManager[None]:
        """Run the processes while the context is open."""
        return running_hogs(self.count)


def noisy_neighbour(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Start two CPU-bound processes per core, with the same priority as the server.

    On a machine with an NVIDIA GPU, start one process that uses the GPU instead. The severity then
    has no effect.
    """
    if has_gpu():
        return ServerFault(
            cause="noisy_neighbour", metric="tpot", usual=usual, during=usual, disturb=gpu_hog
        )
    hogs = Hogs(max(1, round(2 * (os.cpu_count() or 1) * severity)))
    return ServerFault(
        cause="noisy_neighbour",
        metric="tpot",
        usual=usual,
        during=usual,
        disturb=hogs,
        notes={"hogs": hogs.count},
    )
