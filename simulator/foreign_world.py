"""A foreign world: servers with properties that the step model of `replay/` does not have.

Pure. The simulator and the replay use the same scheduler and the same formula of the step model. So
the results of a diagnosis may be better on this simulator than on real servers. In a foreign world,
the formula of the fitted step model is wrong, as it is for a real server.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from simulator.conditions import ConditionChange


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignWorld:
    """The properties of all servers of a fleet."""

    slowdown_per_sequence: float
    """Relative increase of a step's duration for each sequence in the step.

    The fitted step model cannot represent this increase. To represent this increase, the model
    would need a term that multiplies the number of sequences by the other work, but it only adds
    terms.
    """
    drift_ratio: float
    """Standard deviation of the logarithm of a server's pace. The pace stays the same for many
    steps. In contrast, the noise of the step model is drawn again for each step."""
    drift_every_s: float
    """Mean number of seconds between two changes of the pace."""

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
"""The `source` number of a foreign world's changes. Faults have the numbers 0 and above."""
