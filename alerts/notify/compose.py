"""Compose the message about an incident from its objective's status. Pure."""

from fractions import Fraction
from typing import Final

from alerts.burnrate import State, WindowPair
from alerts.evaluation.status import ObjectiveStatus, exhausted_in_s
from alerts.explorer_links import incident_link
from alerts.history import History
from alerts.notify.message import HeldBack, IncidentMessage, Transition, WindowPairBurnRates
from alerts.objectives import Objective
from telemetry.incidents import IncidentRow

HELD_BACK: Final = (State.LOW_TRAFFIC, State.COLD_START)


def compose(
    incident: IncidentRow,
    objective: Objective,
    status: ObjectiveStatus,
    history: History,
    *,
    explorer_url: str | None,
    likely_cause: str | None = None,
) -> IncidentMessage:
    """The message about an incident.

    Args:
        status: the status at the last alert of the incident, or after its end.
        history: the counts, at least over the longest window.
        likely_cause: one sentence, or None if unknown.
    """
    own = {
        pair: state for pair, state in status.states.items() if pair.severity == incident.severity
    }
    fired = [pair for pair, state in own.items() if state is State.FIRING]
    shown = fired[0] if fired else next(iter(own))
    counts = history.counts(status.at_s - shown.long_s, status.at_s)
    burn = status.burns[shown.long_s]
    left = status.budget_left
    over = incident.ended_unix_s is not None

    def windows(pair: WindowPair) -> WindowPairBurnRates:
        return WindowPairBurnRates(
            pair.long_s,
            pair.short_s,
            float(pair.factor),
            _number(status.burns[pair.long_s]),
            _number(status.burns[pair.short_s]),
        )

    return IncidentMessage(
        transition=Transition.RESOLVED if over else Transition.FIRING,
        slo=incident.slo,
        group=dict(objective.group),
        labels=dict(objective.labels),
        annotations=dict(objective.annotations),
        display_name=objective.display_name,
        service=objective.service,
        severity=incident.severity,
        statement=objective.statement,
        began_unix_s=incident.began_unix_s,
        fired_unix_s=incident.fired_unix_s,
        as_of_unix_s=status.at_s,
        ended_unix_s=incident.ended_unix_s,
        burn=_number(burn),
        window_s=shown.long_s,
        bad=counts.bad,
        events=counts.events,
        counted_in=objective.counted_in,
        peak_burn=float(Fraction(incident.peak_burn)),
        budget_left=_number(left),
        budget_spent=None
        if incident.budget_spent is None
        else float(Fraction(incident.budget_spent)),
        exhausted_in_s=_number(exhausted_in_s(objective, left, burn, status.at_s)),
        fired_by=tuple(map(windows, fired)),
        held_back=tuple(
            HeldBack(windows(pair), str(state)) for pair, state in own.items() if state in HELD_BACK
        ),
        link=None
        if explorer_url is None
        else incident_link(incident.slo, incident.fired_unix_s, explorer_url),
        simulated=bool(incident.simulated),
        likely_cause=likely_cause,
    )


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
