"""The range and the baseline of a link to an incident.

They come from the stored explanation. Without a stored explanation, they are computed once, as in
`tailspan explain --incident`. The links on the page contain the range and the baseline. "Copy link"
therefore reproduces the view.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import Engine

from alerts.evaluation.group_slots import expanded
from alerts.explorer_links import PROBE_FILTERS, required
from alerts.objectives import GoodProbes, Objective
from analysis.incident import (
    MIN_EXPLAINED_S,
    find_incident,
    incident_at,
    leading_incident,
    read_questions,
    split_incident_name,
)
from analysis.incident_answer import stored_answer
from analysis.over_time.time_bins import SECOND_NS
from telemetry.incidents import IncidentRow
from telemetry.window import Window
from ui.frame.view import View
from ui.kit.instants import instant_unix_ns
from ui.kit.wording import plain


class IncidentSelection(NamedTuple):
    """The view of an incident. If the incident was not found, `row` is None and `notice` gives the
    reason."""

    view: View
    row: IncidentRow | None = None
    notice: str | None = None


def find(
    engine: Engine, view: View, objectives: Sequence[Objective], now_unix_ns: int
) -> IncidentSelection:
    """Return the view of the incident that a page's address names.

    The address's filters are kept, except for labels that the objective selects. For an open
    incident, the range ends at `now_unix_ns`.
    """
    assert view.incident is not None
    name, at_s, whole = _parts(view.incident)
    found = expanded(engine, objectives)
    objective = next((each for each in found if each.name == name), None)
    if objective is None or not whole:
        known = ", ".join(each.name for each in objectives) or "none"
        return _without_incident(view, f"allowed: SLO or SLO@TIME, with one of these SLOs: {known}")
    row, _ = find_incident(engine, name, at_s)
    if row is None:
        return _without_incident(view, f"SLO {name} has no such incident")
    if isinstance(objective.indicator, GoodProbes):
        began_ns = (row.began_unix_s - MIN_EXPLAINED_S) * SECOND_NS
        ended_ns = now_unix_ns if row.ended_unix_s is None else row.ended_unix_s * SECOND_NS
        seen = view.between(max(0, began_ns), max(began_ns + SECOND_NS, ended_ns))
        chosen = required(objective.indicator.where, PROBE_FILTERS)
        incident = f"{name}@{row.fired_unix_s}"
        region, endpoint = (chosen.get(label, "") for label in PROBE_FILTERS)
        seen = replace(seen, page="outside", region=region, endpoint=endpoint)
        return IncidentSelection(replace(seen, incident=incident), row)
    answer = stored_answer(engine, objective, row)
    if answer is not None:
        questions = answer.questions
    else:
        questions = read_questions(engine, objective, row, now_unix_ns // SECOND_NS)
    window, baseline = (
        Window(each.from_unix_ns, each.to_unix_ns)
        for each in (questions.window, questions.baseline)
    )
    selected = {label: value for label, value in questions.equals.items() if value is not None}
    shown = replace(
        view.between(window.from_unix_ns, window.to_unix_ns),
        incident=f"{name}@{row.fired_unix_s}",
        equals={**view.equals, **selected},
        baseline=baseline,
        page="root-cause" if questions.metrics else "overview",
    )
    if questions.metrics:
        shown = replace(shown, latency=f"{questions.metrics[0].value}_s")
    return IncidentSelection(shown, row)


def named(view: View, incidents: Sequence[IncidentRow]) -> IncidentRow | None:
    """The incident that the view's address names, or else the leading incident, if any.

    The leading incident is the first incident. If the first incident has the severity "ticket", and
    an incident of the same SLO with the severity "page" overlaps it, the latter leads.
    """
    name, at_s, _ = _parts(view.incident or "")
    its = sorted((row for row in incidents if row.slo == name), key=lambda row: -row.fired_unix_s)
    if (row := incident_at(its, at_s)) is not None or not incidents:
        return row
    return leading_incident(incidents, incidents[0])


def _parts(incident: str) -> tuple[str, int | None, bool]:
    """The name of the SLO, the unix seconds if any, and whether the text could be parsed."""
    name, instant = split_incident_name(incident)
    at_ns = None if instant is None else instant_unix_ns(instant)
    whole = instant is None or at_ns is not None
    return name, None if at_ns is None else at_ns // SECOND_NS, whole


def _without_incident(view: View, why: str) -> IncidentSelection:
    shown = View(page=view.page)
    return IncidentSelection(
        shown,
        notice=f"The address's incident is “{plain(view.incident or '')}”; {why}:"
        f" showing the last {shown.last}.",
    )
