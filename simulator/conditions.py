"""What surrounds one server and may change while it runs: clocks, neighbours, links, room.

Pure. Each fault says its own word on a condition; several words add up or multiply.
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
"""`pace` and the like: how much longer something takes, 1 being usual: all of a step, a step on
one rank, what the front end does, a KV transfer, loading an adapter. `clock`: by how much the
GPU's clock is down. `foreign`: processes of others on the GPU. `lost_blocks`: KV blocks that
nobody uses and nobody may take. `pull`: the share of all requests that goes to this replica
whatever the router would do."""


@dataclass(frozen=True, slots=True)
class Change:
    """From `at_s` on a condition of a replica has this value, by this source's word."""

    at_s: float
    replica: int
    key: Key
    value: float
    source: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """A server ends at `at_s`, and is ready again `down_s` later.

    Args:
        config: what it is started with; None for the same as before.
        new_shape_s: what the first step of each shape takes on top.
    """

    at_s: float
    replica: int
    down_s: float
    config: EngineConfig | None = None
    new_shape_s: float = 0.0


Event = Change | Restart


def in_time(events: Iterable[Event]) -> Iterator[Event]:
    """Events, of which there are not endlessly many, in the order of time."""
    return iter(sorted(events, key=attrgetter("at_s")))


class Conditions:
    """The conditions of one replica."""

    def __init__(self) -> None:
        self._words: dict[Key, dict[int, float]] = {}

    def set(self, change: Change) -> None:
        """Hear a source's word; it replaces its earlier one."""
        self._words.setdefault(change.key, {})[change.source] = change.value

    def factor(self, key: Key) -> float:
        """The product of all words; 1 where there is none."""
        return math.prod(self._words.get(key, {}).values())

    def total(self, key: Key) -> float:
        """The sum of all words; 0 where there is none."""
        return sum(self._words.get(key, {}).values())
