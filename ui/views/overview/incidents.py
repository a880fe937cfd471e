"""Incidents in words, each with the way to the page that says why.

Pure. Returns HTML in which every foreign word has been escaped.
"""

import html
from collections.abc import Sequence
from datetime import tzinfo
from fractions import Fraction

from alerts.objectives import Objective
from ui.frame.address import link
from ui.frame.view import View
from ui.kit import wording
from ui.kit.slo_status import SloIncident, SloState, goes_on


def happened(found: Sequence[SloState], zone: tzinfo) -> str:
    """The incidents, those that go on first, each with the way to its reasons."""
    every = [(each.objective, one, each.status.at_s) for each in found for one in each.incidents]
    if not every:
        return "<p class='note'>None in this range, nor in the week before its end.</p>"
    every.sort(key=lambda each: (not goes_on(each[1].row, each[2]), -each[1].row.began_unix_s))
    return f"<ul class='incidents'>{''.join(_incident(*each, zone) for each in every)}</ul>"


def _incident(
    objective: Objective,
    one: SloIncident,
    at_s: int,
    zone: tzinfo,
) -> str:
    row = one.row
    now = goes_on(row, at_s)
    began = wording.clock(row.began_unix_s * 10**9, zone, date=True)[:-3]
    end_s = at_s if now or row.ended_unix_s is None else row.ended_unix_s
    lasted = wording.span(max(0, end_s - row.began_unix_s))
    peak_at = wording.clock(row.peak_unix_s * 10**9, zone)[:5]
    facts = [
        f"since <b>{began}</b>, goes on for {lasted}" if now else f"<b>{began}</b>, for {lasted}",
        f"peak {wording.fold(_ratio(row.peak_burn))} at {peak_at}",
    ]
    if row.budget_spent is not None:
        facts.append(f"spent {wording.exact_percent(_ratio(row.budget_spent))} of the budget")
    if one.bad is not None:
        facts.append(f"{wording.counted(one.bad, 'request')} broke the promise")
    mood = "hurt" if row.severity == "page" else "near"
    state = f"<span class='state {mood if now else ''}'>{wording.for_html(row.severity)}</span>"
    cause = "" if one.cause is None else f"<p>{wording.for_html(one.cause, 300)}</p>"
    name = wording.for_html(objective.name, 63)
    incident = View(last=None, page="root-cause", incident=f"{row.slo}@{row.fired_unix_s}")
    href = html.escape(link(incident))
    return (
        f"<li class='{'open' if now else ''}'><p>{state} <b>{name}</b>"
        f" {' · '.join(facts)}</p>{cause}<p><a href='{href}'>Why is it slow?</a></p></li>"
    )


def _ratio(kept: str) -> float:
    return float(Fraction(kept))
