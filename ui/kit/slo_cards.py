"""Describe the state of an objective as HTML. Pure. External text is escaped."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Final

from alerts.blindness import REASONS
from alerts.burnrate import State, WindowPair
from analysis.slo_states import SloState
from telemetry import durations
from telemetry.printable import first_upper
from ui.kit import slo_text, wording
from ui.kit.tables import table
from ui.kit.terms import term

DAY_S: Final = 86_400
STATE_TEXTS: Final = {
    State.FIRING: "alerts",
    State.QUIET: "below",
    State.LOW_TRAFFIC: "not alerting: too few bad requests",
    State.COLD_START: "not alerting: not enough history",
    State.NO_DATA: "no requests",
}


def card(each: SloState, zone: tzinfo, *, named: bool = True, silent_s: float | None = None) -> str:
    """The state of an objective. `silent_s` is the time without data, or None if data arrives."""
    label = _label(each, silent_s)
    status, objective = each.status, each.objective
    period = objective.period_text
    left = status.budget_left
    if left is None:
        nothing = f"{blind(each)}<p class='note'>No {objective.rows} counted yet over {period}.</p>"
        return _framed(each, named, label, nothing)
    shown = max(0.0, min(1.0, float(left)))
    percent = wording.exact_percent(float(left))
    facts = [
        f"<b>{percent}</b> of the {term('budget', 'error budget')} of {period} left",
        _budget_outlook(each),
    ]
    if each.shown.events:
        good = wording.exact_percent(1 - float(each.shown.bad_ratio or 0))
        facts.append(
            f"{good} good of {each.shown.events:,} {objective.counted_in} that ended from"
            f" {_counted_range(each, zone)}"
        )
    if status.covered < 1 and status.since_s is not None:
        known = wording.span(status.at_s - status.since_s)
        facts.append(f"counted for {known} so far; time without data counts as good")
    state = "stale" if silent_s is not None else "low" if shown < 0.25 else "some"
    return _framed(
        each,
        named,
        label,
        f"<div class='budget {state}' role='img' aria-label='{percent} of the error budget left'>"
        f"<i style='width:{shown:.1%}'></i></div><p class='note'>{' · '.join(facts)}</p>"
        f"{blind(each)}",
    )


def _counted_range(each: SloState, zone: tzinfo) -> str:
    from_s, to_s = each.shown_from_s, each.status.at_s
    date = to_s - from_s > DAY_S
    start, end = (wording.clock(at_s * 10**9, zone, date=date) for at_s in (from_s, to_s))
    return f"{start} to {end}"


def blind(each: SloState) -> str:
    """Why an objective counts no recent requests and how to fix this, or an empty text."""
    if each.blind is None:
        return ""
    why, remedy = map(wording.code_html, REASONS[each.blind])
    which = "The whole SLO: blind" if each.objective.group else "Blind"
    return (
        f"<p class='notice'><b>{which} in the last hour: this SLO cannot detect a burn.</b>"
        f" {first_upper(why)}. <b>To do:</b> {remedy}.</p>"
    )


def _framed(each: SloState, named: bool, label: str, inside: str) -> str:
    if not named:
        return f"<div class='slo'><p>{label}</p>{inside}</div>"
    name = wording.for_html(each.objective.display_name, 120)
    what = wording.for_html(slo_text.target(each.objective), 300)
    return f"<div class='slo'><p><b>{name}</b> {label}</p><p class='note'>{what}</p>{inside}</div>"


def _label(each: SloState, silent_s: float | None) -> str:
    if each.pages:
        return "<span class='state bad'>paging</span>"
    if each.burns:
        return "<span class='state near'>ticket</span>"
    if each.spent:
        return "<span class='state near'>spent</span>"
    if silent_s is not None:
        return f"<span class='state near'>no data for {wording.span(silent_s)}</span>"
    if each.blind is not None:
        return "<span class='state near'>blind</span>"
    if each.held_back:
        return "<span class='state near'>alert on hold</span>"
    if each.status.period.events:
        return "<span class='state fine'>within budget</span>"
    return f"<span class='state'>no {each.objective.rows}</span>"


def _budget_outlook(each: SloState) -> str:
    status = each.status
    pace = f"last {durations.render(status.burning_s)}"
    if status.budget_left is not None and status.budget_left <= 0:
        return "spent"
    if status.burns[status.burning_s] is None:
        return f"no {each.objective.rows} ({pace})"
    if not status.burns[status.burning_s]:
        return f"not burning ({pace})"
    if status.exhausted_in_s is None or status.lasts_the_period:
        return f"lasts until the period ends at this rate ({pace})"
    return f"spent in <b>{wording.span(float(status.exhausted_in_s))}</b> at this rate ({pace})"


def groups(found: Sequence[SloState], silent_s: float | None = None) -> str:
    """A table with a row for each group of an objective. `silent_s` is as in `card`."""
    heads = ("group", "", "missed", "of", "budget left", "burn rate")
    return table(heads, [_group(each, silent_s) for each in found], "groups")


def _group(each: SloState, silent_s: float | None) -> Sequence[str]:
    status = each.status
    values = ", ".join(value or "unknown" for _, value in each.objective.group)
    left = "–" if status.budget_left is None else wording.exact_percent(float(status.budget_left))
    burning = status.burns[status.burning_s]
    return (
        wording.for_html(values, 63),
        # Do not repeat in each group why the objective counts no requests. The page shows it once.
        _label(replace(each, blind=None), silent_s),
        f"{status.period.bad:,}",
        f"{status.period.events:,}",
        left,
        wording.fold(None if burning is None else float(burning)),
    )


def windows(each: SloState) -> str:
    """The pairs of windows of the objective's alerts.

    A pair alerts if the burn rates of both windows are above the pair's factor.
    """
    heads = ("alert", "windows", "burn rate", "alerts above", "state")
    rows = [_window(each, pair, state) for pair, state in each.status.states.items()]
    return table(heads, rows, "windows")


def _window(each: SloState, pair: WindowPair, state: State) -> Sequence[str]:
    burns = each.status.burns
    both = " and ".join(
        wording.fold(None if burns[length] is None else float(burns[length] or 0))
        for length in (pair.long_s, pair.short_s)
    )
    factor = wording.fold(float(pair.factor))
    over = f"{durations.render(pair.long_s)} and {durations.render(pair.short_s)}"
    text = STATE_TEXTS[state].replace("requests", each.objective.rows)
    if state is State.FIRING:
        text = f"<b>{text}</b>"
    return str(pair.severity), over, both, factor, text
