"""Good and all, per objective: each request judged against the exact threshold as it comes in.

The counters stand at 0 from the start, or Prometheus would miss the first event. A request
that ended long before it was heard of (a replay, a sender that was cut off) says nothing of
the present: Prometheus cannot date it back, so it is left out and counted as `late`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from alerts.groups import Group, other, places_in
from alerts.judging import EXCLUDED, Verdict
from alerts.judging_tables import NOT_SELECTED, VERDICTS, columns_of, judge_table, table_of
from alerts.objectives import Goodput
from exporters.bulk import Bulk

LATE: Final = "late"
REASONS: Final = (*map(str, EXCLUDED), LATE)

LATE_NS: Final = 300 * 10**9
"""The shortest window that a page is decided on; senders give up much sooner."""


@dataclass(slots=True)
class SloTotals:
    """The counts of one objective, or of one of its groups, since start."""

    events: int = 0
    good: int = 0
    excluded: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def add(self, codes: np.ndarray, late: int) -> None:
        """Add requests by their verdicts, and those that were reported late."""
        self.excluded[LATE] += late
        numbers = np.bincount(codes, minlength=len(VERDICTS)).tolist()
        for verdict, number in zip(VERDICTS, numbers, strict=True):
            if verdict in EXCLUDED:
                self.excluded[str(verdict)] += number
            else:
                self.events += number
                self.good += number if verdict is Verdict.GOOD else 0

    def copy(self) -> "SloTotals":
        """As of now."""
        return SloTotals(self.events, self.good, dict(self.excluded))


Key = tuple[str, Group]
"""An objective's name, and a group; () where it has none."""


class Slos:
    """Counts requests for every objective.

    Args:
        objectives: by name.
        placed: the groups of an objective that are counted by themselves.
    """

    def __init__(
        self,
        objectives: Mapping[str, Goodput],
        placed: Callable[[Goodput], tuple[Group, ...]],
    ) -> None:
        self._objectives = dict(objectives)
        self._placed = placed
        self._totals: dict[Key, SloTotals] = {}

    def add(self, bulk: Bulk) -> None:
        """Count requests where they are meant."""
        late = bulk.now_unix_ns - bulk.ended_unix_ns > LATE_NS
        for name, goodput in self._objectives.items():
            columns = (*columns_of(goodput.where, goodput.good), *goodput.by)
            table = table_of(bulk.rows, dict.fromkeys(columns))
            codes = judge_table(goodput.where, goodput.good, table)
            places, meant = self._places(goodput), codes != NOT_SELECTED
            place = places_in(table, goodput.by, places[1:]) if goodput.by else np.zeros_like(codes)
            for at in np.unique(place[meant]).tolist():
                own = meant & (place == at)
                totals = self._totals.setdefault((name, places[at]), SloTotals())
                totals.add(codes[own & ~late], int(np.count_nonzero(own & late)))

    def copy(self) -> dict[Key, SloTotals]:
        """As of now; a group that has just got its place stands at 0."""
        keys = [
            (name, group) for name, each in self._objectives.items() for group in self._places(each)
        ]
        self._totals = {key: self._totals.get(key, SloTotals()) for key in keys}
        return {key: totals.copy() for key, totals in self._totals.items()}

    def _places(self, goodput: Goodput) -> tuple[Group, ...]:
        """The group of all others first."""
        return (other(goodput.by), *self._placed(goodput)) if goodput.by else ((),)
