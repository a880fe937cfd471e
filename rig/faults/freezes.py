"""A fault that repeatedly stops the engine core, with SIGSTOP and SIGCONT."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rig.faults.fault import DisturbedServer, ServerFault
from rig.faults.traffic import PlannedTraffic


@dataclass(frozen=True, slots=True)
class Freezing:
    """About every `every_s` seconds, stops the engine core for about `stop_s` seconds."""

    stop_s: float
    every_s: float

    @contextmanager
    def __call__(self, server: DisturbedServer, draw: random.Random) -> Iterator[None]:
        """Stop the engine core repeatedly while the context is open."""
        done = threading.Event()
        (core,) = server.engine_cores()

        def freeze() -> None:
            while not done.wait(draw.uniform(0.6, 1.4) * self.every_s):
                os.kill(core, signal.SIGSTOP)
                done.wait(draw.uniform(0.7, 1.3) * self.stop_s)
                os.kill(core, signal.SIGCONT)

        freezer = threading.Thread(target=freeze)
        freezer.start()
        try:
            yield
        finally:
            done.set()
            freezer.join()


def engine_stall(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Stop the engine for half a second, about seventeen times per minute."""
    freezing = Freezing(draw.uniform(0.4, 0.6) * severity, draw.uniform(3.0, 4.0))
    return ServerFault(
        cause="engine_stall",
        metric="itl_max",
        usual=usual,
        during=usual,
        disturb=freezing,
        notes={"stop_s": freezing.stop_s, "every_s": freezing.every_s},
    )
