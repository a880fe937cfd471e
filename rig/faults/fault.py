"""What a fault on a real server consists of: the traffic before, the traffic under it, and what
is done to the server meanwhile."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from rig.faults.traffic import Traffic


class Server(Protocol):
    """What a disturbance may do to the server."""

    def engine_cores(self) -> list[int]:
        """Process ids of its engine cores."""
        ...

    def restart(self, arguments: tuple[str, ...]) -> None:
        """Stop it, and start it at the same address with these arguments; until it serves."""
        ...


Disturb = Callable[[Server, random.Random], AbstractContextManager[None]]


def undisturbed(server: Server, draw: random.Random) -> AbstractContextManager[None]:
    """The traffic alone is the fault."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A cause, and how it is brought about."""

    cause: str
    metric: str
    """The latency that it hurts, as `tailspan explain --metric` has it."""
    usual: Traffic
    under: Traffic
    arguments: tuple[str, ...] = ("--max-num-seqs", "32")
    """vLLM's own, beyond the rig's."""
    disturb: Disturb = undisturbed
    arguments_after: tuple[str, ...] | None = None
    """The server is restarted with these, before the traffic under the fault."""
    delayed: bool = False
    """Whether clients get in late, so that the window ends with the last answer."""
    notes: dict[str, float] = field(default_factory=dict)
    """The values drawn, for the truth."""


Make = Callable[[random.Random, float, Traffic], Fault]
"""Draws a fault of a severity (1 is plain to see), over this traffic or one much like it."""
