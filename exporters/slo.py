"""Good and all, per objective: each request judged against the exact threshold as it comes in.

The counters stand at 0 from the start, or Prometheus would miss the first event. A request
that ended long before it was heard of (a replay, a sender that was cut off) says nothing of
the present: Prometheus cannot date it back, so it is left out and counted as `late`.

A request in flight that is bad already counts with the first report that shows it, and never
again: each report says how old the request was at the one before, and so does its row in the end.
A counter takes nothing back. A request that a client error ends after it was counted stays bad.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from alerts.judging import EXCLUDED, Verdict
from alerts.judging_in_flight import newly_bad, was_bad_in_flight
from alerts.judging_tables import NOT_SELECTED, VERDICTS, columns_of, judge_table, table_of
from alerts.objectives import Goodput
from exporters.bulk import BoolArray, Bulk
from telemetry.in_flight import InFlightRequest
from telemetry.sketches import IntArray

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
        late = _late(bulk.now_unix_ns, bulk.ended_unix_ns)
        for name, goodput in self._objectives.items():
            table = table_of(bulk.rows, columns_of(goodput.where, goodput.good))
            codes = judge_table(goodput.where, goodput.good, table)
            codes[was_bad_in_flight(goodput, bulk.rows)] = NOT_SELECTED
            meant, totals = codes != NOT_SELECTED, self._totals[name]
            totals.excluded[LATE] += int(np.count_nonzero(meant & late))
            numbers = np.bincount(codes[meant & ~late], minlength=len(VERDICTS)).tolist()
            for verdict, number in zip(VERDICTS, numbers, strict=True):
                if verdict in EXCLUDED:
                    totals.excluded[str(verdict)] += number
                else:
                    totals.events += number
                    totals.good += number if verdict is Verdict.GOOD else 0

    def add_in_flight(self, reports: Sequence[InFlightRequest], now_unix_ns: int) -> None:
        """Count reports that show for the first time that an objective is missed."""
        late = _late(now_unix_ns, np.array([each.seen_unix_ns for each in reports], np.int64))
        for name, goodput in self._objectives.items():
            bad, totals = newly_bad(goodput, reports), self._totals[name]
            totals.excluded[LATE] += int(np.count_nonzero(bad & late))
            totals.events += int(np.count_nonzero(bad & ~late))

    def copy(self) -> dict[str, SloTotals]:
        """As of now."""
        return {name: totals.copy() for name, totals in self._totals.items()}


def _late(now_unix_ns: int, at_unix_ns: IntArray) -> BoolArray:
    late: BoolArray = now_unix_ns - at_unix_ns > LATE_NS
    return late
