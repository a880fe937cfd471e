"""What happened to the servers while the traffic was recorded, to be replayed with it or without.

Pure.
"""

from dataclasses import dataclass
from typing import NamedTuple

from replay.step_clock import Stall

__all__ = ["Conditions", "Pace", "Stall"]


class Pace(NamedTuple):
    """From `from_s` on, each step of a replica takes `factor` times as long as in its model."""

    from_s: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Stalls and paces of each replica, in order of time. Replicas beyond the last have none."""

    stalls: tuple[tuple[Stall, ...], ...] = ()
    paces: tuple[tuple[Pace, ...], ...] = ()

    def __post_init__(self) -> None:
        for name, times in (
            ("stalls", [[each.at_s for each in replica] for replica in self.stalls]),
            ("paces", [[each.from_s for each in replica] for replica in self.paces]),
        ):
            if any(replica != sorted(replica) for replica in times):
                raise ValueError(f"{name}: allowed: in order of time for each replica")
        if any(not each.factor > 0 for replica in self.paces for each in replica):
            raise ValueError("paces: allowed: a factor of more than 0")

    def stalls_of(self, replica: int) -> tuple[Stall, ...]:
        """Return the stalls of a replica."""
        return self.stalls[replica] if replica < len(self.stalls) else ()

    def paces_of(self, replica: int) -> tuple[Pace, ...]:
        """Return the paces of a replica."""
        return self.paces[replica] if replica < len(self.paces) else ()
