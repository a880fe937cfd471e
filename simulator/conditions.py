"""Conditions of a server that change over time, such as clocks, links and memory.

Pure. If several faults set the same condition, their values are multiplied (factors) or added (all
others).
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
"""The conditions. Five of them are factors by which a duration is multiplied. Their usual value is
1:
- `pace`: a step.
- `rank_pace`: a step on one rank, which is one of the server's GPUs.
- `frontend_pace`: the front end's work.
- `link_pace`: a KV transfer.
- `storage_pace`: loading an adapter.

The other conditions are:

- `slowdown_per_sequence`: relative increase of a step's duration for each sequence in the step.
- `clock`: divides the GPU's clock frequency.
- `foreign`: other processes on the GPU.
- `lost_blocks`: KV blocks that are unused but cannot be allocated.
- `pull`: share of all requests that the router always sends to the replica.
- `hung`: above 0 while the engine takes no step.
"""


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """A new value of a replica's condition. It applies from the virtual time `at_s`."""

    at_s: float
    replica: int
    key: Key
    value: float
    source: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """The server stops at `at_s` and is ready again after `down_s` seconds.

    Args:
        config: the new configuration. If None, the configuration does not change.
        new_shape_s: additional seconds of the first step of each batch shape.
    """

    at_s: float
    replica: int
    down_s: float
    config: EngineConfig | None = None
    new_shape_s: float = 0.0


Event = ConditionChange | Restart


def in_time(events: Iterable[Event]) -> Iterator[Event]:
    """Return the events in order of time. There must be finitely many."""
    return iter(sorted(events, key=attrgetter("at_s")))


class ReplicaConditions:
    """The conditions of one replica."""

    def __init__(self) -> None:
        self._words: dict[Key, dict[int, float]] = {}

    def set(self, change: ConditionChange) -> None:
        """Replace a fault's value of a condition."""
        self._words.setdefault(change.key, {})[change.source] = change.value

    def factor(self, key: Key) -> float:
        """The product of all faults' values, or 1."""
        return math.prod(self._words.get(key, {}).values())

    def total(self, key: Key) -> float:
        """The sum of all faults' values, or 0."""
        return sum(self._words.get(key, {}).values())
