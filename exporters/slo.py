"""Good and all, per objective: each request judged against the exact threshold as it comes in.

The counters stand at 0 from the start, or Prometheus would miss the first event. A request
that ended long before it was heard of (a replay, a sender that was cut off) says nothing of
the present: Prometheus cannot date it back, so it is left out and counted as `late`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from alerts.judging import EXCLUDED, Verdict, judge, selects
from alerts.objectives import Goodput
from telemetry.requests import RequestTimeline

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

    def add(self, request: RequestTimeline, now_unix_ns: int) -> None:
        """Count one request where it is meant."""
        ended_unix_ns = request.received_unix_ns + round(request.e2e_s * 1e9)
        late = now_unix_ns - ended_unix_ns > LATE_NS
        for name, goodput in self._objectives.items():
            if not selects(goodput.where, request):
                continue
            totals = self._totals[name]
            verdict = judge(goodput.good, request)
            if late or verdict in EXCLUDED:
                totals.excluded[LATE if late else str(verdict)] += 1
                continue
            totals.events += 1
            totals.good += verdict is Verdict.GOOD

    def copy(self) -> dict[str, SloTotals]:
        """As of now."""
        return {name: totals.copy() for name, totals in self._totals.items()}
