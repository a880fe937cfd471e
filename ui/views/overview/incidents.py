"""The list of incidents, with links to their causes. Pure. External text is escaped."""

import html
from collections.abc import Sequence
from datetime import tzinfo

from alerts.objectives import Objective
from analysis.slo_states import SloIncident, SloState
from ui.frame.address import link
from ui.frame.view import View
from ui.kit import wording

STATES = {"page": "paging", "ticket": "ticket"}


def incidents(found: Sequence[SloState], zone: tzinfo) -> str:
    """The incidents as HTML. Open incidents are first."""
    every = [(each.objective, one, each.status.at_s) for each in found for one in each.incidents]
    burning = [each for each in found if each.burns and not each.open]
    recorded = "".join(
        f"<p class='note'>SLO “{wording.for_html(each.objective.name, 63)}” burns too fast. Its"
        " incident appears after the next evaluation, within 15 s.</p>"
        for each in burning
    )
    if not every:
        none = "<p class='note'>No incident in this range or in the week before its end.</p>"
        return recorded or none
    every.sort(key=lambda each: (not each[1].is_open, -each[1].began_unix_s))
    return (
        f"{recorded}<ul class='incidents'>{''.join(_incident(*each, zone) for each in every)}</ul>"
    )


def _incident(objective: Objective, one: SloIncident, at_s: int, zone: tzinfo) -> str:
    row = one.row
    began = wording.clock(one.began_unix_s * 10**9, zone, date=True)[:-3]
    end_s = at_s if one.ended_unix_s is None else one.ended_unix_s
    lasted = wording.span(max(0, end_s - one.began_unix_s))
    began_ns, peak_ns = one.began_unix_s * 10**9, one.peak_unix_s * 10**9
    peak_at = wording.clock_or_date(peak_ns, zone, began_ns)[:-3]
    facts = [
        f"since <b>{began}</b>, for {lasted} so far"
        if one.is_open
        else f"<b>{began}</b>, for {lasted}",
        f"{'burn rate' if one.is_peak_later else 'peak'} {wording.fold(float(one.peak_burn))}"
        f" at {peak_at}",
    ]
    if one.budget_spent is not None:
        spent = wording.exact_percent(float(one.budget_spent))
        facts.append(f"spent {spent} of the error budget")
    if one.bad is not None:
        facts.append(f"{one.bad:,} {objective.counted_in} missed it")
    mood = "bad" if one.severity == "page" else "near"
    label = STATES.get(one.severity, one.severity) if one.is_open else one.severity
    state = f"<span class='state {mood if one.is_open else ''}'>{wording.for_html(label)}</span>"
    cause = "" if one.cause is None else f"<p>{wording.for_html(one.cause, 300)}</p>"
    name = wording.for_html(objective.name, 63)
    incident = View(last=None, page="root-cause", incident=f"{row.slo}@{row.fired_unix_s}")
    href = html.escape(link(incident))
    return (
        f"<li class='{'open' if one.is_open else ''}'><p>{state} <b>{name}</b>"
        f" {' · '.join(facts)}</p>{cause}<p><a href='{href}'>Find the cause</a></p></li>"
    )
