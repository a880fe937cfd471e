"""The data type of a fault on a real server."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from rig.faults.traffic import PlannedTraffic


class DisturbedServer(Protocol):
    """The operations that a fault may perform on the server."""

    def engine_cores(self) -> list[int]:
        """The process ids of the server's engine cores."""
        ...

    def restart(self, arguments: tuple[str, ...]) -> None:
        """Restart the server at the same address with these arguments. Return when the server is
        ready."""
        ...


Disturb = Callable[[DisturbedServer, random.Random], AbstractContextManager[None]]


def undisturbed(server: DisturbedServer, draw: random.Random) -> AbstractContextManager[None]:
    """Do nothing, for a fault that consists only of traffic."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFault:
    """The cause of a fault, and how to produce it."""

    cause: str
    metric: str
    """The latency to explain, as in `tailspan explain --metric`."""
    usual: PlannedTraffic
    during: PlannedTraffic
    arguments: tuple[str, ...] = ("--max-num-seqs", "32")
    disturb: Disturb = undisturbed
    arguments_after: tuple[str, ...] | None = None
    """If set, the server is restarted with these arguments before the fault's traffic."""
    delayed: bool = False
    """Whether clients may connect late. If so, the fault's window ends with the last response."""
    notes: dict[str, float] = field(default_factory=dict)


Make = Callable[[random.Random, float, PlannedTraffic], ServerFault]
"""Creates a fault from random numbers, a severity and the usual traffic.

At severity 1, the fault is clearly visible.
"""
