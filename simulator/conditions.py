"""Conditions of a server that change at runtime: clocks, neighbours, links, memory.

Pure. Each fault sets its own value of a condition. The values of several faults are added or
multiplied.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from replay.engine_config import EngineConfig

Key = Literal[
    "pace",
    "rank_pace",
    "clock",
    "frontend_pace",
    "link_pace",
    "storage_pace",
    "foreign",
    "lost_blocks",
    "pull",
]
"""The names of the conditions. Some are factors: the duration of an action relative to its usual
duration, which is 1. Such actions are a whole step (`pace`), a step on one rank, the front end's
work, a KV transfer, and loading an adapter. `clock` is the reduction of the GPU's clock. `foreign`
is the number of other processes on the GPU. `lost_blocks` are KV blocks that are unused but cannot
be allocated. `pull` is the share of all requests that goes to this replica regardless of the
router."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a replica's condition by a fault. The value is valid from `at_s` on."""

    at_s: float
    replica: int
    key: Key
    value: float
    source: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """A server stops at `at_s` and is ready again `down_s` later.

    Args:
        config: configuration of the new process; None for the previous one.
        new_shape_s: additional duration of the first step of each batch shape.
    """

    at_s: float
    replica: int
    down_s: float
    config: EngineConfig | None = None
    new_shape_s: float = 0.0


Event = Change | Restart


def in_time(events: Iterable[Event]) -> Iterator[Event]:
    """Sort events by time. Their number must be finite."""
    return iter(sorted(events, key=attrgetter("at_s")))


class Conditions:
    """The conditions of one replica."""

    def __init__(self) -> None:
        self._words: dict[Key, dict[int, float]] = {}

    def set(self, change: Change) -> None:
        """Set a fault's value, replacing its previous value."""
        self._words.setdefault(change.key, {})[change.source] = change.value

    def factor(self, key: Key) -> float:
        """Return the product of all values; 1 if there are none."""
        return math.prod(self._words.get(key, {}).values())

    def total(self, key: Key) -> float:
        """Return the sum of all values; 0 if there are none."""
        return sum(self._words.get(key, {}).values())
