"""Where each objective stands at an instant, and its incidents, from the store."""

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
from alerts.notify.message import loads
from alerts.objectives import Goodput, Objective
from analysis.blind_objectives import blind_reason
from store.alerting.incidents import IncidentRow, read_incidents
from store.alerting.notifications import read_notifications
from store.queries import Window
from ui.frame.view import SECOND_NS

LATELY_S: Final = 7 * 86_400
MOST_INCIDENTS: Final = 8
MOST_GROUPS: Final = 6
"""Groups of one objective that a page shows in full; what is fine need not be read."""


@dataclass(frozen=True, slots=True)
class SloIncident:
    """An incident; `bad` are the requests that broke the promise since it began, None where
    that is not asked, and `cause` is what was told of it."""

    row: IncidentRow
    bad: int | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class SloState:
    """An objective, `shown` of the range in view; `blind` is why it does not count the requests of
    the last hour, as a key of `alerts.blindness.REASONS`. With groups, the first of them has it."""

    status: Status
    shown: Counts
    incidents: Sequence[SloIncident] = field(default_factory=tuple)
    blind: str | None = None

    @property
    def objective(self) -> Objective:
        """Whose."""
        return self.status.objective

    @property
    def open(self) -> list[SloIncident]:
        """The incidents that go on, the one that pages first."""
        going_on = [each for each in self.incidents if goes_on(each.row, self.status.at_s)]
        return sorted(going_on, key=lambda each: each.row.severity != "page")

    @property
    def pages(self) -> bool:
        """Whether someone is to be woken."""
        return self.status.severity == "page" or any(
            each.row.severity == "page" for each in self.open
        )

    @property
    def burns(self) -> bool:
        """Whether it burns fast enough to alert, if only for a ticket."""
        return self.firing is not None or bool(self.open)

    @property
    def spent(self) -> bool:
        """Whether nothing of the period's budget is left."""
        left = self.status.budget_left
        return left is not None and left <= 0

    @property
    def firing(self) -> Pair | None:
        """The first pair of windows that alerts."""
        return self._saying(State.FIRING)

    @property
    def held_back(self) -> Pair | None:
        """The first pair that would page, were more known; that a ticket waits is no news."""
        found = self._saying(State.LOW_TRAFFIC) or self._saying(State.COLD_START)
        return found if found is not None and found.severity == "page" else None

    def _saying(self, wanted: State) -> Pair | None:
        return next((p for p, state in self.status.states.items() if state is wanted), None)


def worst_first(found: Sequence[SloState]) -> list[SloState]:
    """Groups in the order in which they need attention."""

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
    """Every objective without groups, and of each other one the groups that need attention most.

    Returns:
        Those to show, and by objective how many groups are left out.
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
    """Whether an incident is under way at an instant."""
    return row.ended_unix_s is None or row.ended_unix_s > at_s


def instant_s(window: Window, now_unix_ns: int) -> int:
    """As of when: the end of the range, but for what may still be on its way."""
    end_s = min(window.to_unix_ns, now_unix_ns - ARRIVAL_S * SECOND_NS) // SECOND_NS
    return max(0, end_s // EVALUATION_S * EVALUATION_S)


def slo_states(
    engine: Engine, objectives: Sequence[Objective], window: Window, at_s: int
) -> tuple[SloState, ...]:
    """Of each objective that Tailspan counts itself, each group by itself, as of an instant."""
    count = by_second()
    found: list[SloState] = []
    for objective in objectives:
        if not isinstance(objective.indicator, Goodput):
            continue
        groups = [
            _standing(engine, each, window, at_s, count) for each in expanded(engine, [objective])
        ]
        blind = blind_reason(engine, objective, [tally for _, tally in groups], at_s)
        first, *others = [standing for standing, _ in groups]
        found += [replace(first, blind=blind), *others]
    return tuple(found)


def _standing(
    engine: Engine, objective: Objective, window: Window, at_s: int, count: Count
) -> tuple[SloState, Tally]:
    """Where one group stands, and its counts."""
    assert isinstance(objective.indicator, Goodput)
    rows = _lately(read_incidents(engine, objective.name), window, at_s)
    causes = _causes(engine, objective.name) if rows else {}
    shown_s = min(window.from_unix_ns // SECOND_NS, at_s)
    began = {row.began_unix_s for row in rows if goes_on(row, at_s)}
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
    standing = SloState(
        status_at(objective, tally.history, tally.since_s, tally.excluded(), at_s),
        tally.history.counts(shown_s, at_s),
        tuple(
            SloIncident(
                row,
                tally.history.counts(row.began_unix_s, at_s).bad
                if row.began_unix_s in began and row.began_unix_s < at_s
                else None,
                causes.get((row.severity, row.fired_unix_s)),
            )
            for row in rows
        ),
    )
    return standing, tally


def _lately(rows: Sequence[IncidentRow], window: Window, at_s: int) -> list[IncidentRow]:
    """Those that go on, and those of the range or of a week before it ends; newest first."""
    from_s = min(window.from_unix_ns // SECOND_NS, at_s - LATELY_S)
    known = [row for row in rows if row.fired_unix_s <= at_s + ARRIVAL_S]
    return [row for row in known if row.last_unix_s >= from_s][:MOST_INCIDENTS]


def burning_since_ns(found: Sequence[SloState], window: Window) -> int | None:
    """When what burned in the stretch before a window, as long as that, began; None for nothing."""
    length_s = (window.to_unix_ns - window.from_unix_ns) // SECOND_NS
    from_s = window.from_unix_ns // SECOND_NS
    began = [
        one.row.began_unix_s
        for each in found
        for one in each.incidents
        if one.row.began_unix_s < from_s
        and (one.row.ended_unix_s is None or one.row.ended_unix_s > from_s - length_s)
    ]
    return min(began) * SECOND_NS if began else None


def _causes(engine: Engine, slo: str) -> Mapping[tuple[str, int], str]:
    """What those who were told of an incident were told is its likely cause."""
    found: dict[tuple[str, int], str] = {}
    for row in read_notifications(engine, slo):
        cause = loads(row.message).likely_cause
        if cause:
            found[row.severity, row.fired_unix_s] = cause
    return found
