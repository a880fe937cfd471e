"""A fault on a real server: the traffic before it, the traffic during it, and what disturbs the
server."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from rig.faults.traffic import Traffic


class Server(Protocol):
    """The operations on the server that a disturbance may use."""

    def engine_cores(self) -> list[int]:
        """Return the process ids of its engine cores."""
        ...

    def restart(self, arguments: tuple[str, ...]) -> None:
        """Stop the server, and start it at the same address with these arguments. Return when it
        serves requests."""
        ...


Disturb = Callable[[Server, random.Random], AbstractContextManager[None]]


def undisturbed(server: Server, draw: random.Random) -> AbstractContextManager[None]:
    """Leave the server undisturbed, because the traffic alone is the fault."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A cause, and how to produce it."""

    cause: str
    metric: str
    """The latency that the fault makes longer, under its name in `tailspan explain --metric`."""
    usual: Traffic
    under: Traffic
    arguments: tuple[str, ...] = ("--max-num-seqs", "32")
    """vLLM's arguments, in addition to the rig's."""
    disturb: Disturb = undisturbed
    arguments_after: tuple[str, ...] | None = None
    """The server is restarted with these arguments before the traffic of the fault."""
    delayed: bool = False
    """Whether clients may connect late, so that the window ends with the last answer."""
    notes: dict[str, float] = field(default_factory=dict)
    """The random values that were drawn, for the ground truth."""


Make = Callable[[random.Random, float, Traffic], Fault]
"""A function that creates a fault with a severity (1 is clearly visible), from this traffic or
similar traffic."""
