"""The state of each objective at an instant, and its incidents, from the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from sqlalchemy import Engine

from alerts.blindness import LOOKED_AT_S
from alerts.burnrate import Counts, Pair, State
from alerts.evaluation.counting import EVALUATION_S, Count, Tally, by_second, read_tally
from alerts.evaluation.evaluator import ARRIVAL_S
from alerts.evaluation.group_places import expanded
from alerts.evaluation.status import Status, status_at, status_edges
from alerts.history import History
from alerts.notify.message import loads
from alerts.objectives import Goodput, Objective
from analysis.blind_objectives import blind_reason
from store.alerting.incidents import IncidentRow, read_incidents
from store.alerting.notifications import read_notifications
from store.queries import Window
from ui.kit.time_bins import SECOND_NS

LATELY_S: Final = 7 * 86_400
MOST_INCIDENTS: Final = 8
MOST_GROUPS: Final = 6
"""Groups of one objective that a page shows in full; healthy ones can be left out."""


@dataclass(frozen=True, slots=True)
class SloIncident:
    """One burn of an objective: its page, its ticket, or both if they overlap."""

    row: IncidentRow
    """The page if there is one; links point to it."""
    severity: str
    """Severity of the open row; a page takes precedence over a ticket."""
    began_unix_s: int
    ended_unix_s: int | None
    """None while it is open."""
    peak_burn: Fraction
    peak_unix_s: int
    budget_spent: Fraction | None
    bad: int | None = None
    """Requests that missed the objective since the start; None once it has ended."""
    cause: str | None = None
    """The likely cause in its notification."""

    @property
    def goes_on(self) -> bool:
        """Whether it is open."""
        return self.ended_unix_s is None


@dataclass(frozen=True, slots=True)
class SloState:
    """An objective, `shown` for the selected range. `blind` is why it does not count the requests
    of the last hour, as a key of `alerts.blindness.REASONS`; only the first group has it."""

    status: Status
    shown: Counts
    incidents: Sequence[SloIncident] = field(default_factory=tuple)
    blind: str | None = None

    @property
    def objective(self) -> Objective:
        """The objective of this state."""
        return self.status.objective

    @property
    def open(self) -> list[SloIncident]:
        """The open incidents, pages first."""
        going_on = [each for each in self.incidents if each.goes_on]
        return sorted(going_on, key=lambda each: each.severity != "page")

    @property
    def pages(self) -> bool:
        """Whether it pages somebody."""
        return self.status.severity == "page" or any(each.severity == "page" for each in self.open)

    @property
    def burns(self) -> bool:
        """Whether it burns fast enough to alert, at least with a ticket."""
        return self.firing is not None or bool(self.open)

    @property
    def spent(self) -> bool:
        """Whether the period's error budget is used up."""
        left = self.status.budget_left
        return left is not None and left <= 0

    @property
    def firing(self) -> Pair | None:
        """The first pair of windows that alerts."""
        return self._saying(State.FIRING)

    @property
    def held_back(self) -> Pair | None:
        """The first pair that would page with more data; pairs that open a ticket are ignored."""
        found = self._saying(State.LOW_TRAFFIC) or self._saying(State.COLD_START)
        return found if found is not None and found.severity == "page" else None

    def _saying(self, wanted: State) -> Pair | None:
        return next((p for p, state in self.status.states.items() if state is wanted), None)


def worst_first(found: Sequence[SloState]) -> list[SloState]:
    """Return groups in the order of urgency."""

    def order(each: SloState) -> tuple[bool, bool, bool, bool, Fraction]:
        left = each.status.budget_left
        return (
            not each.pages,
            not each.burns,
            each.blind is None,
            each.held_back is None,
            Fraction(2) if left is None else left,
        )

    return sorted(found, key=order)


def foremost(found: Sequence[SloState]) -> tuple[list[SloState], dict[str, int]]:
    """Return every objective without groups, and the most urgent groups of each other objective.

    Returns:
        The states to show, and the number of groups left out by objective.
    """
    by_objective: dict[str, list[SloState]] = {}
    for each in found:
        by_objective.setdefault(each.objective.base, []).append(each)
    shown = [one for each in by_objective.values() for one in worst_first(each)[:MOST_GROUPS]]
    left_out = {
        name: len(each) - MOST_GROUPS
        for name, each in by_objective.items()
        if len(each) > MOST_GROUPS
    }
    return shown, left_out


def goes_on(row: IncidentRow, at_s: int) -> bool:
    """Return whether an incident is open at an instant."""
    return row.ended_unix_s is None or row.ended_unix_s > at_s


def instant_s(window: Window, now_unix_ns: int) -> int:
    """Return the end of the range, or the newest instant whose data has arrived, if earlier."""
    end_s = min(window.to_unix_ns, now_unix_ns - ARRIVAL_S * SECOND_NS) // SECOND_NS
    return max(0, end_s // EVALUATION_S * EVALUATION_S)


def slo_states(
    engine: Engine, objectives: Sequence[Objective], window: Window, at_s: int
) -> tuple[SloState, ...]:
    """Return the state at an instant of each objective that Tailspan counts, group by group."""
    count = by_second()
    found: list[SloState] = []
    for objective in objectives:
        if not isinstance(objective.indicator, Goodput):
            continue
        groups = [
            _state(engine, each, window, at_s, count) for each in expanded(engine, [objective])
        ]
        blind = blind_reason(engine, objective, [tally for _, tally in groups], at_s)
        first, *others = [state for state, _ in groups]
        found += [replace(first, blind=blind), *others]
    return tuple(found)


def _state(
    engine: Engine, objective: Objective, window: Window, at_s: int, count: Count
) -> tuple[SloState, Tally]:
    """Return the state of one group, and its counts."""
    assert isinstance(objective.indicator, Goodput)
    rows = _lately(read_incidents(engine, objective.name), window, at_s)
    causes = _causes(engine, objective.name) if rows else {}
    shown_s = min(window.from_unix_ns // SECOND_NS, at_s)
    burns = overlapping(rows)
    began = {row.began_unix_s for burn in burns if _open(burn, at_s) for row in burn}
    tally = read_tally(
        engine,
        objective.indicator,
        min(shown_s, *status_edges(objective, at_s)),
        at_s,
        count,
        instants={
            shown_s,
            at_s - LOOKED_AT_S,
            *status_edges(objective, at_s),
            *began,
        },
    )
    status = status_at(objective, tally.history, tally.since_s, tally.excluded(), at_s)
    state = SloState(
        status,
        tally.history.counts(shown_s, at_s),
        tuple(incident_of(burn, status, tally.history, causes) for burn in burns),
    )
    return state, tally


def overlapping(rows: Sequence[IncidentRow]) -> list[list[IncidentRow]]:
    """Return the rows of each burn: a page and a ticket that overlap are one."""
    found: list[list[IncidentRow]] = []
    for row in sorted(rows, key=lambda each: each.began_unix_s):
        last = found[-1] if found else []
        if any(goes_on(each, row.began_unix_s) for each in last):
            last.append(row)
        else:
            found.append([row])
    return found[::-1]


def _open(rows: Sequence[IncidentRow], at_s: int) -> list[IncidentRow]:
    return [row for row in rows if goes_on(row, at_s)]


def incident_of(
    rows: Sequence[IncidentRow],
    status: Status,
    history: History,
    causes: Mapping[tuple[str, int], str],
) -> SloIncident:
    """Return one burn.

    Args:
        rows: its page, its ticket or both; at least one.
        status: the objective's current state; its burn rate may be the peak.
        history: the counts.
        causes: by severity and time of the alert.
    """
    at_s = status.at_s
    ordered = sorted(rows, key=lambda each: each.severity != "page")
    open_rows = _open(ordered, at_s)
    peaks = [(Fraction(row.peak_burn), row.peak_unix_s) for row in rows]
    for row in open_rows:  # the current burn rate is newer than the last evaluation
        now = [status.burns[pair.long_s] for pair in status.states if pair.severity == row.severity]
        peaks += [(Fraction(burn), at_s) for burn in now if burn is not None]
    peak, peak_s = max(peaks, key=lambda each: each[0])
    began_s = min(row.began_unix_s for row in rows)
    spent = [Fraction(row.budget_spent) for row in rows if row.budget_spent is not None]
    named = [causes.get((row.severity, row.fired_unix_s)) for row in ordered]
    return SloIncident(
        ordered[0],
        (open_rows or ordered)[0].severity,
        began_s,
        None if open_rows else max(row.ended_unix_s or at_s for row in rows),
        peak,
        peak_s,
        max(spent, default=None),
        history.counts(began_s, at_s).bad if open_rows and began_s < at_s else None,
        next(filter(None, named), None),
    )


def _lately(rows: Sequence[IncidentRow], window: Window, at_s: int) -> list[IncidentRow]:
    """Return incidents, newest first: open ones, the range's, and up to a week before its end."""
    from_s = min(window.from_unix_ns // SECOND_NS, at_s - LATELY_S)
    known = [row for row in rows if row.fired_unix_s <= at_s + ARRIVAL_S]
    return [row for row in known if row.last_unix_s >= from_s][:MOST_INCIDENTS]


def burning_since_ns(found: Sequence[SloState], window: Window) -> int | None:
    """Return when the earliest burn of the previous range (of the same length) began, or None."""
    length_s = (window.to_unix_ns - window.from_unix_ns) // SECOND_NS
    from_s = window.from_unix_ns // SECOND_NS
    began = [
        one.began_unix_s
        for each in found
        for one in each.incidents
        if one.began_unix_s < from_s
        and (one.ended_unix_s is None or one.ended_unix_s > from_s - length_s)
    ]
    return min(began) * SECOND_NS if began else None


def _causes(engine: Engine, slo: str) -> Mapping[tuple[str, int], str]:
    """Return the likely causes in notifications, by severity and time of the alert."""
    found: dict[tuple[str, int], str] = {}
    for row in read_notifications(engine, slo):
        cause = loads(row.message).likely_cause
        if cause:
            found[row.severity, row.fired_unix_s] = cause
    return found
