"""What a range is compared with where nobody said: the time before it that no incident spoils.

Pure. The stretch just before a range is usual only while nothing is wrong. With an incident under
way it lies in the incident, and the comparison finds no difference. So the stretch ends where the
incident began, and before any other that it would meet.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from diagnosis.question import Span
from store.alerting.incidents import IncidentRow

_NS = 10**9


@dataclass(frozen=True, slots=True)
class Baseline:
    """A stretch to compare with, and the incident before which it lies; None for the stretch
    just before the range."""

    span: Span
    before: IncidentRow | None = None


def usual_baseline(
    window: Span, incidents: Sequence[IncidentRow], length_ns: int | None = None
) -> Baseline:
    """The latest stretch before a window that no incident overlaps.

    Args:
        window: the range in question.
        incidents: those known, of any objective.
        length_ns: how long the stretch is; None for as long as the window.
    """
    length_ns = length_ns or window.to_unix_ns - window.from_unix_ns
    end_ns, before = window.from_unix_ns, None
    while met := [row for row in incidents if _overlaps(row, end_ns - length_ns, end_ns)]:
        before = min(met, key=lambda row: row.began_unix_s)
        end_ns = before.began_unix_s * _NS
    return Baseline(Span(max(0, end_ns - length_ns), max(1, end_ns)), before)


def within(window: Span, incidents: Sequence[IncidentRow]) -> tuple[IncidentRow, ...]:
    """The incidents that a window overlaps, the one that began first in front; pages before
    tickets that began at once with them."""
    found = [row for row in incidents if _overlaps(row, window.from_unix_ns, window.to_unix_ns)]
    return tuple(sorted(found, key=lambda row: (row.began_unix_s, row.severity != "page")))


def _overlaps(row: IncidentRow, from_ns: int, to_ns: int) -> bool:
    ended_ns = None if row.ended_unix_s is None else row.ended_unix_s * _NS
    return row.began_unix_s * _NS < to_ns and (ended_ns is None or ended_ns > from_ns)
