"""The status of an objective: remaining budget, burn rates, time until it is spent. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from alerts.burnrate import Counts, Pair, State, budget_left, burn, exhaustion_s, judge
from alerts.history import History
from alerts.objectives import Objective
from alerts.periods import Span


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an objective at an instant; None means unknown.

    Args:
        objective: the objective.
        at_s: the instant, in unix seconds.
        since_s: from when the counts hold; None where there are none.
        span: the period, from its start to its end.
        period: the counts of the period, as far as they are known.
        covered: the share of the period that they cover.
        budget_left: of the period's budget; below 0 where it is overspent.
        burns: by window in seconds.
        exhausted_in_s: how long the budget lasts at the pace of the shortest page's long window;
            None also where it lasts until a calendar period ends.
        states: the state of each pair.
        excluded: excluded requests by reason.
    """

    objective: Objective
    at_s: int
    since_s: int | None
    span: Span
    period: Counts
    covered: Fraction
    budget_left: Fraction | None
    burns: Mapping[int, Fraction | None]
    exhausted_in_s: Fraction | None
    states: Mapping[Pair, State]
    excluded: Mapping[str, int]

    @property
    def burning_s(self) -> int:
        """The length of the window whose burn rate is shown as the present one."""
        return next(iter(self.states)).long_s

    @property
    def severity(self) -> str | None:
        """The first severity that fires."""
        firing = [pair.severity for pair, state in self.states.items() if state is State.FIRING]
        return firing[0] if firing else None

    @property
    def lasts_the_period(self) -> bool:
        """Whether the budget is not spent before the period is over, at the present pace."""
        if self.budget_left is None or self.budget_left <= 0:
            return False
        if self.objective.calendar:
            return self.exhausted_in_s is None
        return self.exhausted_in_s is None or self.exhausted_in_s >= self.span.length_s


def window_edges(objective: Objective, at_s: int) -> set[int]:
    """When each window that ends at an instant begins, the period's not among them."""
    lengths = {length for pair in objective.policy.pairs for length in (pair.long_s, pair.short_s)}
    return {at_s - length for length in lengths}


def status_edges(objective: Objective, at_s: int) -> set[int]:
    """When each window that a status at an instant needs begins: the period and those of alerts."""
    return window_edges(objective, at_s) | {objective.period_at(at_s).start_s}


def exhausted_in_s(
    objective: Objective, left: Fraction | None, burning: Fraction | None, at_s: int
) -> Fraction | None:
    """How long the budget lasts at this pace; None if nothing burns, or if a calendar period ends
    earlier and brings a new budget."""
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
) -> Status:
    """An objective's status.

    Args:
        objective: whose.
        history: its counts, of the whole period.
        since_s: from when they hold.
        excluded: what was left out of them.
        at_s: now.
    """
    pairs = objective.policy.pairs
    lengths = sorted({length for pair in pairs for length in (pair.long_s, pair.short_s)})
    windows = {length: history.window(length, at_s) for length in lengths}
    burns = {length: burn(windows[length].counts, objective.budget) for length in lengths}
    span = objective.period_at(at_s)
    period = history.part_of(span, at_s)
    left = _left(period.counts, period.covered, objective.budget)
    now = burns[pairs[0].long_s]
    return Status(
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


def _left(counts: Counts, covered: Fraction, budget: Fraction) -> Fraction | None:
    """The uncovered part of the period counts as good traffic at the same rate."""
    left = budget_left(counts, budget)
    return None if left is None else 1 - (1 - left) * covered
