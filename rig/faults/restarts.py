"""Faults that restart the server: under load, or with other arguments."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rig.faults.fault import DisturbedServer, ServerFault
from rig.faults.traffic import PlannedTraffic

_AFTER_S = 4.0


@dataclass(frozen=True, slots=True)
class Restarting:
    """Restart the server once, soon after the traffic begins."""

    arguments: tuple[str, ...]

    @contextmanager
    def __call__(self, server: DisturbedServer, draw: random.Random) -> Iterator[None]:
        """Restart the server once while the context is open."""
        restart = threading.Timer(_AFTER_S, server.restart, (self.arguments,))
        restart.start()
        try:
            yield
        finally:
            restart.join()


def cold_start(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Restart the server under load. After the restart, all waiting clients connect at the same
    time."""
    usual = replace(usual, rate_per_s=usual.rate_per_s * severity)
    arguments = ("--max-num-seqs", "4")
    return ServerFault(
        cause="cold_start",
        metric="ttft",
        arguments=arguments,
        usual=usual,
        during=usual,
        disturb=Restarting(arguments),
        delayed=True,
    )


def config_change(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Continue the same traffic after a deploy that makes the batch too small."""
    usual = replace(usual, rate_per_s=usual.rate_per_s * severity)
    return ServerFault(
        cause="config_change",
        metric="ttft",
        arguments=("--max-num-seqs", "16"),
        usual=usual,
        during=usual,
        arguments_after=("--max-num-seqs", "1"),
    )
