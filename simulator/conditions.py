"""Conditions of a server that change over time: clocks, other processes, links, memory.

Pure. Each fault sets its own value of a condition. If several faults set a condition, their values
are added or multiplied.
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
    "slowdown_per_sequence",
    "clock",
    "frontend_pace",
    "link_pace",
    "storage_pace",
    "foreign",
    "lost_blocks",
    "pull",
    "hung",
]
"""The names of the conditions.

Five conditions are factors of a duration, and 1 is the usual duration: `pace` (a whole step),
`rank_pace` (a step on one rank, which is one of the server's GPUs), `frontend_pace` (the front
end's work), `link_pace` (a KV transfer) and `storage_pace` (loading an adapter). The other
conditions:

- `slowdown_per_sequence` is the relative increase of a step's duration for each sequence in the
step.
- `clock` is the factor by which the GPU's clock frequency is divided.
- `foreign` is the number of other processes on the GPU.
- `lost_blocks` is the number of KV blocks that are unused but cannot be allocated.
- `pull` is the share of all requests that the replica receives independently of the routing policy.
- `hung` is above 0 while the engine takes no step.
"""


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """A new value of a replica's condition, which applies from the virtual time `at_s`."""

    at_s: float
    replica: int
    key: Key
    value: float
    source: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart: the server stops at `at_s` and is ready again after `down_s` seconds.

    Args:
        config: configuration of the new process. None keeps the previous configuration.
        new_shape_s: additional duration, in seconds, of the first step of each batch shape.
    """

    at_s: float
    replica: int
    down_s: float
    config: EngineConfig | None = None
    new_shape_s: float = 0.0


Event = ConditionChange | Restart


def in_time(events: Iterable[Event]) -> Iterator[Event]:
    """Return the events in order of time. `events` must be finite."""
    return iter(sorted(events, key=attrgetter("at_s")))


class ReplicaConditions:
    """The conditions of one replica."""

    def __init__(self) -> None:
        self._words: dict[Key, dict[int, float]] = {}

    def set(self, change: ConditionChange) -> None:
        """Replace a fault's previous value of a condition by a new value."""
        self._words.setdefault(change.key, {})[change.source] = change.value

    def factor(self, key: Key) -> float:
        """Return the product of all faults' values of a condition, or 1 without values."""
        return math.prod(self._words.get(key, {}).values())

    def total(self, key: Key) -> float:
        """Return the sum of all faults' values of a condition, or 0 without values."""
        return sum(self._words.get(key, {}).values())
