"""Store the stalls and slowdowns of the recorded servers, so that a replay can repeat them.

Pure.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from replay.step_clock import Stall

__all__ = ["Conditions", "Pace", "Shift", "Stall"]


class Pace(NamedTuple):
    """A replica's pace. After `from_s`, a step takes `factor` times its predicted duration."""

    from_s: float
    factor: float


class Shift(NamedTuple):
    """A time range, and the seconds by which the events in this range are moved. The range contains
    the times t with `from_s` ≤ t < `to_s`."""

    from_s: float
    to_s: float
    by_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """For each replica, its stalls and its changes of speed, in order of time. Replicas beyond the
    end of these lists have no stalls and the pace 1."""

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

    def shifted(self, shifts: Sequence[Shift]) -> "Conditions":
        """Return the stalls and paces that begin in one of the ranges, moved by the range's `by_s`.
        All other stalls and paces are omitted.

        Args:
            shifts: the ranges to keep, in order of their times after the move. The moved ranges
                must not overlap.
        """

        def moved(events: Sequence[Any], time: str) -> tuple[Any, ...]:
            # The events are in order of time. A window of a day has thousands of ranges and events,
            # so the events of a range are found by bisection.
            at_s = attrgetter(time)
            found: list[Any] = []
            for shift in shifts:
                low = bisect_left(events, shift.from_s, key=at_s)
                high = bisect_left(events, shift.to_s, key=at_s)
                found += (
                    each._replace(**{time: at_s(each) + shift.by_s}) for each in events[low:high]
                )
            return tuple(found)

        return Conditions(
            stalls=tuple(moved(each, "at_s") for each in self.stalls),
            paces=tuple(moved(each, "from_s") for each in self.paces),
        )
