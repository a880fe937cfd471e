"""The data type of a fault on a real server.

A fault consists of the traffic before and during the fault, and a disturbance of the server.
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from rig.faults.traffic import Traffic


class Server(Protocol):
    """The operations that a disturbance may perform on the server."""

    def engine_cores(self) -> list[int]:
        """Return the process ids of the server's engine cores."""
        ...

    def restart(self, arguments: tuple[str, ...]) -> None:
        """Stop the server, and start it at the same address with these arguments.

        Return when the server serves requests.
        """
        ...


Disturb = Callable[[Server, random.Random], AbstractContextManager[None]]


def undisturbed(server: Server, draw: random.Random) -> AbstractContextManager[None]:
    """Leave the server undisturbed, because the fault consists only of traffic."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The cause of a fault, and how to produce it."""

    cause: str
    metric: str
    """The latency that the fault increases, as in `tailspan explain --metric`."""
    usual: Traffic
    under: Traffic
    arguments: tuple[str, ...] = ("--max-num-seqs", "32")
    """Arguments for vLLM, in addition to the rig's."""
    disturb: Disturb = undisturbed
    arguments_after: tuple[str, ...] | None = None
    """If set, the server is restarted with these arguments before the traffic of the fault
    begins."""
    delayed: bool = False
    """Whether clients can connect later than planned. If so, the fault's time window ends with the
    last response."""
    notes: dict[str, float] = field(default_factory=dict)
    """The random values of this fault, to be stored in the ground truth."""


Make = Callable[[random.Random, float, Traffic], Fault]
"""A function that creates a fault from random numbers, a severity (1 is clearly visible) and the
usual traffic."""
