"""Detect incidents. A burn is one incident with a start, a peak and an end. Pure.

A cumulative sum (CUSUM) estimates when the rate of bad events most likely rose. The assumed rate
before the rise just meets the objective. The assumed rate after the rise just triggers an alert. An
incident ends with its last alert, after `QUIET_S` seconds without an alert.

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
"""A shorter pause of the alert creates no second incident."""
MINUTE_S: Final = 60


@dataclass(frozen=True, slots=True)
class Incident:
    """A burn that triggered an alert.

    Args:
        began_s: when the budget began to burn too fast.
        fired_s: time of the first alert.
        last_s: time of the last alert.
        peak_burn: the highest burn rate over the long window of the severity's shortest pair.
        ended_s: `last_s` if the incident is over, or None while the incident is open.
        simulated: True if the alert fires only because of simulated requests.
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
    """Evaluate one severity of an objective at an instant.

    Args:
        history: the counts, at least over the longest window.

    Returns:
        The incident, with `ended_s` if it is over, or None.
    """
    pairs = tuple(pair for pair in objective.policy.pairs if pair.severity == severity)
    policy = replace(objective.policy, pairs=pairs)
    state = states_at(history, at_s, policy, objective.budget)[severity]
    if state is not State.FIRING:
        if open_incident is None or at_s - open_incident.last_s < QUIET_S:
            return open_incident
        return replace(open_incident, ended_s=open_incident.last_s)
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
    """The most likely start of a burn: the t that maximises bad(t) − k · all(t).

    bad(t) and all(t) count the events since t. k = (r₁ − r₀) / (ln r₁ − ln r₀). r₀ is the rate of
    bad events that just meets the objective. r₁ is the rate that just alerts (Lucas, 1985).
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
    """Share of the period's budget that a burn spent, or None without events.

    For the time without data, good events are assumed, at the request rate of the time with data.
    If a burn lies in two calendar periods, the budget of the later period is used.
    """
    until_s = incident.last_s
    span = objective.period_at(until_s)
    period = history.part_of(span, until_s)
    if not period.counts.events:
        return None
    bad = history.counts(max(incident.began_s, span.start_s), until_s).bad
    return Fraction(bad, period.counts.events) / objective.budget * period.covered
