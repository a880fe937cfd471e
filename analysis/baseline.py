"""Choose the default baseline of a window: the latest earlier range without an incident. Pure.

A range with an incident may be as slow as the window, so a comparison with it would find no
difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from diagnosis.question import Span
from telemetry.incidents import IncidentRow

_NS = 10**9


@dataclass(frozen=True, slots=True)
class Baseline:
    """`before` is the incident that begins at the end of the baseline. It is None if the baseline
    ends at the start of the window."""

    span: Span
    before: IncidentRow | None = None


def usual_baseline(
    window: Span, incidents: Sequence[IncidentRow], length_ns: int | None = None
) -> Baseline:
    """Return the latest range before a window that overlaps no incident.

    By default, the range has the length of the window.
    """
    length_ns = length_ns or window.to_unix_ns - window.from_unix_ns
    end_ns, before = window.from_unix_ns, None
    while met := [row for row in incidents if _overlaps(row, end_ns - length_ns, end_ns)]:
        before = min(met, key=lambda row: row.began_unix_s)
        end_ns = before.began_unix_s * _NS
    return Baseline(Span(max(0, end_ns - length_ns), max(1, end_ns)), before)


def within(window: Span, incidents: Sequence[IncidentRow]) -> tuple[IncidentRow, ...]:
    """The incidents that overlap a window, sorted by start time.

    If two incidents start at the same time, severity "page" comes before "ticket"."""
    found = [row for row in incidents if _overlaps(row, window.from_unix_ns, window.to_unix_ns)]
    return tuple(sorted(found, key=lambda row: (row.began_unix_s, row.severity != "page")))


def _overlaps(row: IncidentRow, from_ns: int, to_ns: int) -> bool:
    ended_ns = None if row.ended_unix_s is None else row.ended_unix_s * _NS
    return row.began_unix_s * _NS < to_ns and (ended_ns is None or ended_ns > from_ns)
