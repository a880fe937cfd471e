"""Conditions of a server that change at runtime: clocks, neighbours, links, memory.

Pure. Each fault sets its own value of a condition; the values are added or multiplied.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from simulator.engine_config import EngineConfig

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
"""Factors such as `pace` give how many times longer something takes, 1 being usual: a whole step, a
step on one rank, the front end's work, a KV transfer, loading an adapter. `clock`: the reduction of
the GPU's clock. `foreign`: other processes on the GPU. `lost_blocks`: KV blocks that are unused but
cannot be allocated. `pull`: the share of all requests that goes to this replica regardless of the
router."""


@dataclass(frozen=True, slots=True)
class Change:
    """From `at_s` on, a condition of a replica has this value from this source."""

    at_s: float
    replica: int
    key: Key
    value: float
    source: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """A server stops at `at_s` and is ready again `down_s` later.

    Args:
        config: of the new process; None for the same as before.
        new_shape_s: additional duration of the first step of each batch shape.
    """

    at_s: float
    replica: int
    down_s: float
    config: EngineConfig | None = None
    new_shape_s: float = 0.0


Event = Change | Restart


def in_time(events: Iterable[Event]) -> Iterator[Event]:
    """Sort a finite number of events by time."""
    return iter(sorted(events, key=attrgetter("at_s")))


class Conditions:
    """The conditions of one replica."""

    def __init__(self) -> None:
        self._words: dict[Key, dict[int, float]] = {}

    def set(self, change: Change) -> None:
        """Set a source's value; replaces its previous one."""
        self._words.setdefault(change.key, {})[change.source] = change.value

    def factor(self, key: Key) -> float:
        """Return the product of all values; 1 without any."""
        return math.prod(self._words.get(key, {}).values())

    def total(self, key: Key) -> float:
        """Return the sum of all values; 0 without any."""
        return sum(self._words.get(key, {}).values())
