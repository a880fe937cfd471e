"""The status of an objective: remaining budget, burn rates, time until the budget is spent.
Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from alerts.burnrate import EventCounts, State, WindowPair, budget_left, burn, exhaustion_s, judge
from alerts.history import History
from alerts.objectives import Objective
from alerts.periods import PeriodBounds


@dataclass(frozen=True, slots=True)
class ObjectiveStatus:
    """The status of an objective at an instant. Unknown values are None.

    Args:
        period: counts from the period's start to now.
        covered: share of the period that the counts cover.
        budget_left: negative if overspent.
        burns: maps a window's length in seconds to its burn rate.
        exhausted_in_s: seconds until the budget is spent at the current burn rate (over
            `burning_s`), or None if the budget lasts until a calendar period ends.
    """

    objective: Objective
    at_s: int
    since_s: int | None
    span: PeriodBounds
    period: EventCounts
    covered: Fraction
    budget_left: Fraction | None
    burns: Mapping[int, Fraction | None]
    exhausted_in_s: Fraction | None
    states: Mapping[WindowPair, State]
    excluded: Mapping[str, int]

    @property
    def burning_s(self) -> int:
        """The window of the current burn rate."""
        return next(iter(self.states)).long_s

    @property
    def severity(self) -> str | None:
        """The most urgent severity of the pairs that fire, or None if no pair fires."""
        firing = [pair.severity for pair, state in self.states.items() if state is State.FIRING]
        return firing[0] if firing else None

    @property
    def lasts_the_period(self) -> bool:
        """Return whether the budget lasts until the period ends, at the current burn rate."""
        if self.budget_left is None or self.budget_left <= 0:
            return False
        if self.objective.calendar:
            return self.exhausted_in_s is None
        return self.exhausted_in_s is None or self.exhausted_in_s >= self.span.length_s


def window_edges(objective: Objective, at_s: int) -> set[int]:
    """Starts of the alert windows that end at an instant."""
    lengths = {length for pair in objective.policy.pairs for length in (pair.long_s, pair.short_s)}
    return {at_s - length for length in lengths}


def status_edges(objective: Objective, at_s: int) -> set[int]:
    """Starts of all windows that the status at an instant needs."""
    return window_edges(objective, at_s) | {objective.period_at(at_s).start_s}


def exhausted_in_s(
    objective: Objective, left: Fraction | None, burning: Fraction | None, at_s: int
) -> Fraction | None:
    """Seconds until the budget is spent, or None if the rate is 0 or the calendar period ends
    first."""
    if left is None or burning is None:
        return None
    span = objective.period_at(at_s)
    lasts_s = exhaustion_s(left, burning, span.length_s)
    if objective.calendar and lasts_s is not None and lasts_s >= span.end_s - at_s:
        return None
    return lasts_s


def status_at(
    objective: Objective,
    history: History,
    since_s: int | None,
    excluded: Mapping[str, int],
    at_s: int,
) -> ObjectiveStatus:
    """An objective's status. `history` has the counts of the whole period."""
    pairs = objective.policy.pairs
    lengths = sorted({length for pair in pairs for length in (pair.long_s, pair.short_s)})
    windows = {length: history.window(length, at_s) for length in lengths}
    burns = {length: burn(windows[length].counts, objective.budget) for length in lengths}
    span = objective.period_at(at_s)
    period = history.part_of(span, at_s)
    left = _left(period.counts, period.covered, objective.budget)
    now = burns[pairs[0].long_s]
    return ObjectiveStatus(
        objective,
        at_s,
        since_s,
        span,
        period.counts,
        period.covered,
        left,
        burns,
        exhausted_in_s(objective, left, now, at_s),
        judge(windows, objective.policy, objective.budget),
        excluded,
    )


def _left(counts: EventCounts, covered: Fraction, budget: Fraction) -> Fraction | None:
    """The share of the budget that is left. For the time without data, good events are assumed, at
    the usual request rate."""
    left = budget_left(counts, budget)
    return None if left is None else 1 - (1 - left) * covered
