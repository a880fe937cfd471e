"""Incidents: one for each burn, with its start, its peak, its end. Pure.

A burn begins before it is noticed: at the change point that a CUSUM finds between a rate of bad
events that just keeps the objective and one that just alerts. It ends when nothing has fired for
a while, and then ended when it last fired: a short window that flickers makes no second incident.

Source: E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954; for counts J. M. Lucas,
"Counted data CUSUM's", Technometrics 27, 1985.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import log
from typing import Final

from alerts.burnrate import State, burn
from alerts.history import History, states_at
from alerts.objectives import Objective

QUIET_S: Final = 300
"""So long without an alert ends an incident."""
MINUTE_S: Final = 60


@dataclass(frozen=True, slots=True)
class Incident:
    """A burn that alerted.

    Args:
        slo: the objective's name.
        severity: what it made.
        began_s: since when the budget burned too fast.
        fired_s: when it first alerted.
        last_s: when it last did.
        peak_burn: the fastest burn seen while it alerted, over the severity's first long window.
        peak_s: when that was.
        ended_s: `last_s`, once it is over.
        simulated: whether it would not have alerted without simulated requests.
    """

    slo: str
    severity: str
    began_s: int
    fired_s: int
    last_s: int
    peak_burn: Fraction
    peak_s: int
    ended_s: int | None = None
    simulated: bool = False


def advance(
    open_incident: Incident | None,
    objective: Objective,
    severity: str,
    history: History,
    at_s: int,
) -> Incident | None:
    """What an evaluation at an instant makes of a severity's incident.

    Args:
        open_incident: the one under way, or None.
        objective: whose.
        severity: page or ticket.
        history: the counts, at least as far back as the longest window.
        at_s: the instant.

    Returns:
        The incident as of now, with `ended_s` once it is over; None where there is none.
    """
    state = states_at(history, at_s, objective.policy, objective.budget)[severity]
    if state is not State.FIRING:
        if open_incident is None or at_s - open_incident.last_s < QUIET_S:
            return open_incident
        return replace(open_incident, ended_s=open_incident.last_s)
    pairs = [pair for pair in objective.policy.pairs if pair.severity == severity]
    now = burn(history.counts(at_s - pairs[0].long_s, at_s), objective.budget) or Fraction(0)
    if open_incident is None:
        longest_s = max(pair.long_s for pair in pairs)
        lowest = float(min(pair.factor for pair in pairs))
        began_s = _began_s(history, float(objective.budget), lowest, at_s, longest_s)
        return Incident(objective.name, severity, began_s, at_s, at_s, now, at_s)
    if now > open_incident.peak_burn:
        return replace(open_incident, last_s=at_s, peak_burn=now, peak_s=at_s)
    return replace(open_incident, last_s=at_s)


def _began_s(history: History, budget: float, factor: float, at_s: int, longest_s: int) -> int:
    """The most likely instant at which the bad events rose from the budget's rate to the factor's.

    The start that leaves most bad events beyond the reference rate, which for counts lies between
    the two rates at their difference over the difference of their logarithms (Lucas, 1985).
    """
    reference = budget * ((factor - 1) / log(factor) if factor > 1 else 1)
    began_s = end_s = at_s
    beyond = most = 0.0
    while end_s > max(at_s - longest_s, history.since_s):
        counts = history.counts(end_s - MINUTE_S, end_s)
        end_s -= MINUTE_S
        beyond += counts.bad - reference * counts.events
        if beyond > most:
            began_s, most = end_s, beyond
    return began_s


def budget_spent(incident: Incident, history: History, objective: Objective) -> Fraction | None:
    """The share of the period's budget that a burn spent; None where nothing was counted.

    Of a period that is known in part, the rest counts as good traffic at the same rate. A burn that
    goes on from one calendar period into the next spends the budgets of both; this is the later's.
    """
    until_s = incident.last_s
    span = objective.period_at(until_s)
    period = history.part_of(span, until_s)
    if not period.counts.events:
        return None
    bad = history.counts(max(incident.began_s, span.start_s), until_s).bad
    return Fraction(bad, period.counts.events) / objective.budget * period.covered
