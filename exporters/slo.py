"""Good and all, per objective: each request judged against the exact threshold as it comes in.

The counters stand at 0 from the start, or Prometheus would miss the first event. A request
that ended long before it was heard of (a replay, a sender that was cut off) says nothing of
the present: Prometheus cannot date it back, so it is left out and counted as `late`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

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
    """The counts of one objective since start."""

    events: int = 0
    good: int = 0
    excluded: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def copy(self) -> "SloTotals":
        """As of now."""
        return SloTotals(self.events, self.good, dict(self.excluded))


class Slos:
    """Counts requests for every objective.

    Args:
        objectives: by name.
    """

    def __init__(self, objectives: Mapping[str, Goodput]) -> None:
        self._objectives = dict(objectives)
        self._totals = {name: SloTotals() for name in objectives}

    def add(self, bulk: Bulk) -> None:
        """Count requests where they are meant."""
        late = bulk.now_unix_ns - bulk.ended_unix_ns > LATE_NS
        for name, goodput in self._objectives.items():
            table = table_of(bulk.rows, columns_of(goodput.where, goodput.good))
            codes = judge_table(goodput.where, goodput.good, table)
            meant, totals = codes != NOT_SELECTED, self._totals[name]
            totals.excluded[LATE] += int(np.count_nonzero(meant & late))
            numbers = np.bincount(codes[meant & ~late], minlength=len(VERDICTS)).tolist()
            for verdict, number in zip(VERDICTS, numbers, strict=True):
                if verdict in EXCLUDED:
                    totals.excluded[str(verdict)] += number
                else:
                    totals.events += number
                    totals.good += number if verdict is Verdict.GOOD else 0

    def copy(self) -> dict[str, SloTotals]:
        """As of now."""
        return {name: totals.copy() for name, totals in self._totals.items()}
