"""Read the state of each objective at an instant, and its incidents, from the store.

A burn is a time range in which an objective spends its error budget too fast. In this module, an
incident with the severity `page` is a page, and one with the severity `ticket` is a ticket.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from sqlalchemy import Engine

from alerts.blindness import LOOKBACK_S
from alerts.burnrate import EventCounts, State, WindowPair
from alerts.evaluation.counting import EVALUATION_S, Count, Tally, by_second, read_tally
from alerts.evaluation.evaluator import ARRIVAL_S
from alerts.evaluation.group_slots import expanded
from alerts.evaluation.status import ObjectiveStatus, status_at, status_edges
from alerts.history import History
from alerts.notify.message import UnreadableMessageError, loads
from alerts.objectives import GoodEvents, Objective
from analysis.blind_objectives import blind_reason
from analysis.incident_answer import stored_sentences
from store.alerting.incidents import read_incidents
from store.alerting.notifications import read_notifications
from telemetry.incidents import IncidentRow
from telemetry.window import Window

LISTED_INCIDENTS_S: Final = 7 * 86_400
MAX_INCIDENTS: Final = 8
MAX_GROUPS: Final = 6
"""Maximum number of groups of one objective that a web page shows in full."""

_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of one group of an objective, and its counts."""

    status: ObjectiveStatus
    tally: Tally


@dataclass(frozen=True, slots=True)
class SloIncident:
    """One burn of an objective. A burn has a page, a ticket, or both if they overlap."""

    row: IncidentRow
    """The newest page, or the ticket if there is no page. Links open this incident."""
    severity: str
    """`page` or `ticket`. It is the highest severity of the open incidents."""
    began_unix_s: int
    ended_unix_s: int | None
    """End of the incident, or None while it is open."""
    peak_burn: Fraction
    peak_unix_s: int
    is_peak_later: bool
    """True if the burn's peak is later than the instant of the status. `peak_burn` is then the
    highest burn rate until this instant."""
    budget_spent: Fraction | None
    """The share of the error budget that the burn spent. It is None if it was computed only after
    the instant of the status."""
    bad: int | None = None
    """Number of requests that missed the objective since the incident began. None after the
    incident ended."""
    cause: str | None = None
    """The likely cause, from the stored answer."""

    @property
    def is_open(self) -> bool:
        """Whether the incident is open."""
        return self.ended_unix_s is None


@dataclass(frozen=True, slots=True)
class SloState:
    """The state of one group of an objective at an instant."""

    status: ObjectiveStatus
    shown: EventCounts
    shown_from_s: int
    """Start of the selected range, in unix seconds. `shown` contains the good and bad requests from
    this time to the instant of the status."""
    incidents: Sequence[SloIncident] = field(default_factory=tuple)
    blind: str | None = None

    @property
    def objective(self) -> Objective:
        """The objective of this state."""
        return self.status.objective

    @property
    def open(self) -> list[SloIncident]:
        """The open incidents. Incidents of severity page come first."""
        going_on = [each for each in self.incidents if each.is_open]
        return sorted(going_on, key=lambda each: each.severity != "page")

    @property
    def pages(self) -> bool:
        """Whether an alert of severity page is firing, or an incident of severity page is open."""
        return self.status.severity == "page" or any(each.severity == "page" for each in self.open)

    @property
    def burns(self) -> bool:
        """Whether the burn rates of a pair of windows exceed their threshold, or an incident is
        open."""
        return self.firing is not None or bool(self.open)

    @property
    def spent(self) -> bool:
        """Whether the period's error budget is spent."""
        left = self.status.budget_left
        return left is not None and left <= 0

    @property
    def firing(self) -> WindowPair | None:
        """The first pair of burn-rate windows whose burn rates exceed the threshold."""
        return self._first_pair(State.FIRING)

    @property
    def held_back(self) -> WindowPair | None:
        """The first pair of burn-rate windows of severity page whose alert is suppressed because
        there is too little data."""
        found = self._first_pair(State.LOW_TRAFFIC) or self._first_pair(State.COLD_START)
        return found if found is not None and found.severity == "page" else None

    def _first_pair(self, wanted: State) -> WindowPair | None:
        return next((p for p, state in self.status.states.items() if state is wanted), None)


def worst_first(found: Sequence[SloState]) -> list[SloState]:
    """Sort groups by urgency, the most urgent first."""

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


def most_urgent(found: Sequence[SloState]) -> tuple[list[SloState], dict[str, int]]:
    """Return the most urgent groups of each objective, and for each objective the number of omitted
    groups."""
    by_objective: dict[str, list[SloState]] = {}
    for each in found:
        by_objective.setdefault(each.objective.base, []).append(each)
    shown = [one for each in by_objective.values() for one in worst_first(each)[:MAX_GROUPS]]
    left_out = {
        name: len(each) - MAX_GROUPS
        for name, each in by_objective.items()
        if len(each) > MAX_GROUPS
    }
    return shown, left_out


def is_open(row: IncidentRow, at_s: int) -> bool:
    """Whether an incident is open at an instant."""
    return row.ended_unix_s is None or row.ended_unix_s > at_s


def instant_s(window: Window, now_unix_ns: int) -> int:
    """The instant at which to show the states, in unix seconds.

    It is the end of the range, or the last possible evaluation if it is earlier."""
    end_s = min(window.to_unix_ns, now_unix_ns - ARRIVAL_S * _NS) // _NS
    return max(0, end_s // EVALUATION_S * EVALUATION_S)


def slo_states(
    engine: Engine, objectives: Sequence[Objective], window: Window, at_s: int
) -> tuple[SloState, ...]:
    """The state of each group of the objectives at an instant.

    The start of the counted range is rounded down to a multiple of `EVALUATION_S`. Counts of stored
    rows and counts per `EVALUATION_S` are then equal.
    """
    count = by_second()
    shown_s = min(window.from_unix_ns // _NS, at_s) // EVALUATION_S * EVALUATION_S
    burns: dict[str, list[list[IncidentRow]]] = {}

    def since(group: Objective) -> set[int]:
        rows = _recent_incidents(read_incidents(engine, group.name), window, at_s)
        burns[group.name] = overlapping(rows)
        open_burns = [burn for burn in burns[group.name] if _open(burn, at_s)]
        return {shown_s, *(row.began_unix_s for burn in open_burns for row in burn)}

    found: list[SloState] = []
    for objective in objectives:
        if not isinstance(objective.indicator, GoodEvents):
            continue
        groups, blind = objective_status(engine, objective, at_s, count, since)
        for number, group in enumerate(groups):
            which, history = group.status.objective, group.tally.history
            burned = burns[which.name]
            rows = [row for burn in burned for row in burn]
            causes = _causes(engine, which, rows) if rows else {}
            incidents = (incident_of(burn, group.status, history, causes) for burn in burned)
            found.append(
                SloState(
                    group.status,
                    history.counts(shown_s, at_s),
                    shown_s,
                    tuple(incidents),
                    None if number else blind,
                )
            )
    return tuple(found)


def objective_status(
    engine: Engine,
    objective: Objective,
    at_s: int,
    count: Count,
    since: Callable[[Objective], set[int]] = lambda _: set(),
) -> tuple[list[GroupStatus], str | None]:
    """Return the status of each group of an objective, and the reason if the objective is blind.

    Args:
        count: from `by_second`. Pass the same object for all objectives, because it caches counts
            that several objectives need.
        since: a function that returns instants for a group, in unix seconds. The group's `tally`
            can return the counts since these instants.
    """
    groups = []
    for group in expanded(engine, [objective]):
        assert isinstance(group.indicator, GoodEvents)
        edges = status_edges(group, at_s)
        instants = {*edges, at_s - LOOKBACK_S, *since(group)}
        tally = read_tally(engine, group.indicator, min(instants), at_s, count, instants=instants)
        status = status_at(group, tally.history, tally.since_s, tally.excluded(), at_s)
        groups.append(GroupStatus(status, tally))
    blind = blind_reason(engine, objective, [each.tally for each in groups], at_s)
    return groups, blind


def overlapping(rows: Sequence[IncidentRow]) -> list[list[IncidentRow]]:
    """Group incident rows by burn. A page and a ticket that overlap belong to the same burn."""
    found: list[list[IncidentRow]] = []
    for row in sorted(rows, key=lambda each: each.began_unix_s):
        last = found[-1] if found else []
        if any(is_open(each, row.began_unix_s) for each in last):
            last.append(row)
        else:
            found.append([row])
    return found[::-1]


def _open(rows: Sequence[IncidentRow], at_s: int) -> list[IncidentRow]:
    return [row for row in rows if is_open(row, at_s)]


def incident_of(
    rows: Sequence[IncidentRow],
    status: ObjectiveStatus,
    history: History,
    causes: Mapping[tuple[str, int], str],
) -> SloIncident:
    """Return one burn as one incident.

    Args:
        rows: the pages of the burn, its ticket, or both. The cause of the newest page is shown.
        status: the current status. If its burn rate is higher than the stored peak, it is the peak.
    """
    at_s = status.at_s
    ordered = sorted(rows, key=lambda each: (each.severity != "page", -each.fired_unix_s))
    open_rows = _open(ordered, at_s)
    peaks = [(Fraction(row.peak_burn), row.peak_unix_s) for row in rows if row.peak_unix_s <= at_s]
    for row in open_rows:
        now = [status.burns[pair.long_s] for pair in status.states if pair.severity == row.severity]
        peaks += [(Fraction(burn), at_s) for burn in now if burn is not None]
    peak, peak_s = max(peaks, key=lambda each: each[0], default=(Fraction(0), at_s))
    began_s = min(row.began_unix_s for row in rows)
    spent = [
        Fraction(row.budget_spent)
        for row in rows
        if row.budget_spent is not None and row.last_unix_s <= at_s + ARRIVAL_S
    ]
    return SloIncident(
        ordered[0],
        (open_rows or ordered)[0].severity,
        began_s,
        None if open_rows else max(row.ended_unix_s or at_s for row in rows),
        peak,
        peak_s,
        any(row.peak_unix_s > at_s for row in rows),
        max(spent, default=None),
        history.counts(began_s, at_s).bad if open_rows and began_s < at_s else None,
        causes.get((ordered[0].severity, ordered[0].fired_unix_s)),
    )


def _recent_incidents(rows: Sequence[IncidentRow], window: Window, at_s: int) -> list[IncidentRow]:
    from_s = min(window.from_unix_ns // _NS, at_s - LISTED_INCIDENTS_S)
    known = [row for row in rows if row.fired_unix_s <= at_s + ARRIVAL_S]
    return [row for row in known if row.last_unix_s >= from_s][:MAX_INCIDENTS]


def burning_since_ns(found: Sequence[SloState], window: Window) -> int | None:
    """Return the start of the earliest burn before a window, in unix nanoseconds, or None.

    The burn must overlap the range that has the window's length and ends where the window starts.
    """
    length_s = (window.to_unix_ns - window.from_unix_ns) // _NS
    from_s = window.from_unix_ns // _NS
    began = [
        one.began_unix_s
        for each in found
        for one in each.incidents
        if one.began_unix_s < from_s
        and (one.ended_unix_s is None or one.ended_unix_s > from_s - length_s)
    ]
    return min(began) * _NS if began else None


def _causes(
    engine: Engine, objective: Objective, rows: Sequence[IncidentRow]
) -> Mapping[tuple[str, int], str]:
    """The likely causes. The keys are the severity and the time of the alert. If an incident has no
    stored answer, its cause comes from the notification."""
    found: dict[tuple[str, int], str] = {}
    for row in read_notifications(engine, objective.name):
        try:
            cause = loads(row.message).likely_cause
        except UnreadableMessageError:
            continue
        if cause:
            found[row.severity, row.fired_unix_s] = cause
    return found | stored_sentences(engine, objective, rows)
