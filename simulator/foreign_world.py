"""Simulate servers whose steps do not follow the step model of `replay/`. Pure.

The simulator and the replay use the same step model. So a diagnosis may look better in a simulation
than on real servers. In a foreign world, the step model's formula is wrong, as it is for real
servers.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from simulator.conditions import ConditionChange


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignWorld:
    """Properties of all servers of a fleet."""

    slowdown_per_sequence: float
    """Relative increase of a step's duration for each sequence in the step. The step model is a sum
    of terms, so a fit cannot reproduce this factor."""
    drift_ratio: float
    """Standard deviation of the logarithm of a server's pace. A pace lasts for many steps."""
    drift_every_s: float
    """Mean seconds between two changes of the pace."""

    def events(self, replica: int, seed: str) -> Iterator[ConditionChange]:
        """Yield an endless sequence of changes of a replica's conditions."""
        chance = random.Random(seed)
        yield ConditionChange(
            0.0, replica, "slowdown_per_sequence", self.slowdown_per_sequence, source=_WORLD
        )
        at_s = 0.0
        for _ in count():
            pace = chance.lognormvariate(0.0, self.drift_ratio)
            yield ConditionChange(at_s, replica, "pace", pace, source=_WORLD)
            at_s += chance.expovariate(1.0 / self.drift_every_s)


_WORLD = -1
"""The `source` of the foreign world's condition changes. The sources of faults are 0 and above."""
