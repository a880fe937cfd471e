"""Conditions of the servers during the recording: stalls and slowdowns. A replay can include them.

Pure.
"""

from dataclasses import dataclass
from typing import NamedTuple

from replay.step_clock import Stall

__all__ = ["Conditions", "Pace", "Stall"]


class Pace(NamedTuple):
    """From `from_s` on, each step of a replica takes `factor` times as long as the step model
    predicts."""

    from_s: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The stalls and paces of each replica, in order of time.

    Replicas beyond the end of these tuples have no stalls and run at the speed that the step model
    predicts.
    """

    stalls: tuple[tuple[Stall, ...], ...] = ()
    paces: tuple[tuple[Pace, ...], ...] = ()

    def __post_init__(self) -> None:
        for name, times in (
            ("stalls", [[each.at_s for each in replica] for replica in self.stalls]),
            ("paces", [[each.from_s for each in replica] for replica in self.paces]),
        ):
            if any(replica != sorted(replica) for replica in times):
                raise ValueError(f"{name}: must be in order of time for each replica")
        if any(not each.factor > 0 for replica in self.paces for each in replica):
            raise ValueError("paces: each factor must be above 0")

    def stalls_of(self, replica: int) -> tuple[Stall, ...]:
        """Return the stalls of a replica."""
        return self.stalls[replica] if replica < len(self.stalls) else ()

    def paces_of(self, replica: int) -> tuple[Pace, ...]:
        """Return the paces of a replica."""
        return self.paces[replica] if replica < len(self.paces) else ()
