"""The texts of the Overview page. Pure HTML. External text is escaped."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Final

from alerts.blindness import REASONS
from alerts.burnrate import EventCounts, WindowPair
from alerts.objectives import Objective
from analysis.counted_requests import SERVER_LABELS, CountedAs, counting_notes
from analysis.hourly_cost import HourlyCost
from analysis.incident_answer import StoredAnswer
from analysis.over_time.trends import DAY_NS, Trend
from analysis.slo_states import SloState
from telemetry import durations
from ui.frame.address import link
from ui.frame.view import View
from ui.kit import wording
from ui.kit.slo_cards import STATE_TEXTS
from ui.kit.terms import term

MAX_NAMED: Final = 3
MIN_REQUESTS: Final = 30
"""With fewer requests, the page does not state that an objective is met or missed."""

EXAMPLE: Final = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  service: chat
  budgetingMethod: Occurrences
  timeWindow: [{duration: 30d, isRolling: true}]
  objectives: [{target: 0.99}]
  indicator: {spec: {ratioMetric: {counter: true,
    total: {metricSource: {type: tailspan, spec: {where: streamed == true}}},
    good: {metricSource: {type: tailspan, spec: {good: ttft_s <= 0.5 and tpot_s <= 0.05}}}}}}"""


@dataclass(frozen=True, slots=True)
class Headline:
    """A sentence and a mood. The mood is bad, near (almost bad), fine or unknown."""

    mood: str
    sentence: str


def answer(found: Sequence[SloState], requests: int, length_s: float, zone: tzinfo) -> Headline:
    """The headline about the state of the SLOs.

    Args:
        found: at least one state.
        requests: all requests, even if no objective counts them.
        length_s: the length of the selected range.
    """
    paging = [each for each in found if each.pages]
    if paging:
        also = [each for each in found if each.burns and each not in paging]
        return Headline("bad", _paging_sentence(paging, also, zone))
    slow = [each for each in found if each.burns]
    if slow:
        return Headline(
            "near",
            f"{_burning(slow[0], zone)}. It burns slowly: the alert is a ticket, not a page.",
        )
    spent = [each for each in found if each.spent]
    if spent:
        return Headline("near", _overspent_sentence(spent[0]))
    blind = [each for each in found if each.blind is not None]
    if blind:
        return Headline("near", _blind(blind))
    events = max(each.shown.events for each in found)
    if events < MIN_REQUESTS:
        return Headline("unknown", _too_few(events, requests, length_s))
    doubtful = [each for each in found if each.held_back]
    if doubtful:
        return Headline("near", _held_back(doubtful[0]))
    return _met_answer(found, length_s)


def of_the_past(found: Headline, silent_s: float) -> Headline:
    """The headline if no new data arrives. The mood "fine" becomes "unknown"."""
    mood = "unknown" if found.mood == "fine" else found.mood
    before = f"<b>Unknown for {wording.span(silent_s)}.</b> Before that:"
    return Headline(mood, f"{before} {found.sentence}")


def of_filters(
    view: View, judged: Sequence[tuple[Objective, EventCounts]], length_s: float
) -> Headline:
    """A headline about the objective that has the most bad requests in relation to its budget.

    Objectives with at least `MIN_REQUESTS` requests come first. If there is none, the headline
    states the counts, and not whether an objective is met.
    """
    scope = _filters(view)
    known = [
        (objective, counts, bad)
        for objective, counts in judged
        if counts.events and (bad := counts.bad_ratio) is not None
    ]
    over = wording.span(length_s)
    if not known:
        return Headline("unknown", f"<b>{scope}:</b> no request in {over} counts for an SLO.")
    objective, counts, bad = max(
        known, key=lambda each: (each[1].events >= MIN_REQUESTS, each[2] / each[0].budget)
    )
    if counts.events < MIN_REQUESTS:
        return Headline(
            "unknown",
            f"<b>{scope}:</b> {counts.events - counts.bad:,} of {counts.events:,}"
            f" {objective.counted_in} in {over} met {_name(objective)}. This is too few for a"
            f" share; at least {MIN_REQUESTS} are needed.",
        )
    mood = "fine" if bad <= objective.budget else "near"
    return Headline(
        mood,
        f"<b>{scope}:</b> {wording.exact_percent(1 - float(bad))} of"
        f" {counts.events:,} {objective.counted_in} in {over} met {_name(objective)}"
        f" (target {objective.target_written}); <b>{counts.bad:,}</b> missed it.",
    )


def _paging_sentence(paging: Sequence[SloState], also: Sequence[SloState], zone: tzinfo) -> str:
    text = ". ".join(_burning(each, zone) for each in paging[:MAX_NAMED])
    if len(paging) > MAX_NAMED:
        text += f". {wording.counted(len(paging) - MAX_NAMED, 'more objective')} burn too fast"
    rest = ""
    if also:
        rest = f" Burning more slowly: {_listed([_name(each.objective) for each in also])}."
    return f"{text}.{rest}"


def _burning(each: SloState, zone: tzinfo) -> str:
    pair = each.firing or next(iter(each.status.states))
    burn = each.status.burns[pair.long_s]
    pace = f"{_name(each.objective)} is {term('burn', 'burning')}"
    if burn is not None:
        pace += f" <b>{wording.fold(float(burn))} too fast</b>"
    if each.open:
        first = each.open[0]
        began_ns, at_ns = first.began_unix_s * 10**9, each.status.at_s * 10**9
        since = wording.clock_or_date(began_ns, zone, at_ns)[:-3]
        missed = (
            ""
            if first.bad is None
            else f"; <b>{first.bad:,} {each.objective.counted_in}</b> missed it"
        )
        return f"{pace} since <b>{since}</b>{missed}"
    return f"{pace} (last {durations.render(pair.long_s)})"


def _overspent_sentence(each: SloState) -> str:
    period = each.objective.period_text
    over = wording.exact_percent(float(-(each.status.budget_left or 0)))
    return (
        f"No SLO is burning now, but {_name(each.objective)} has spent its"
        f" {term('budget', 'error budget')} of {period} and exceeded it by <b>{over}</b>."
    )


def _blind(blind: Sequence[SloState]) -> str:
    each = blind[0]
    assert each.blind is not None
    _, *more = [_name(one.objective) for one in blind]
    others = f" The same applies to {_listed(more)}." if more else ""
    why = wording.code_html(REASONS[each.blind].why)
    name = wording.for_html(each.objective.base, 63)
    return (
        f"<b>Unknown:</b> requests arrive, but SLO “{name}” does not count them:"
        f" {why}.{others} The steps to fix it are below."
    )


def _too_few(events: int, requests: int, length_s: float) -> str:
    which = f"{wording.counted(events, 'request')} counted"
    if requests > events:
        some = f"{events:,}" if events else "none"
        which = f"{some} of {wording.counted(requests, 'request')} counted"
    return (
        f"<b>Too few requests:</b> {which} for an SLO in {wording.span(length_s)};"
        f" at least {MIN_REQUESTS} are needed. A longer range may have more."
    )


def _held_back(each: SloState) -> str:
    pair = each.held_back
    assert pair is not None
    why = STATE_TEXTS[each.status.states[pair]].removeprefix("not alerting: ")
    burn = each.status.burns[pair.long_s]
    pace = wording.fold(None if burn is None else float(burn))
    return (
        f"{_name(each.objective)} may be {term('burn', 'burning')} {pace} too fast"
        f" (last {durations.render(pair.long_s)}); no alert yet: {why}."
    )


def _met_answer(found: Sequence[SloState], length_s: float) -> Headline:
    met = "is met" if len(found) == 1 else f"All {len(found)} SLOs are met"
    worst = min(
        (each for each in found if each.shown.events),
        key=lambda each: 1 - (each.shown.bad_ratio or 0) - each.objective.target,
    )
    good = wording.exact_percent(1 - float(worst.shown.bad_ratio or 0))
    of = f"{worst.shown.events:,} {worst.objective.counted_in}"
    name = _name(worst.objective)
    first = f"{name} {met}" if len(found) == 1 else f"{met}; closest to its target is {name}"
    target = f"target {worst.objective.target_written}"
    over = wording.span(length_s)
    hottest = max(found, key=_burn_now)
    burning = _burning_now(hottest) if _burn_now(hottest) > 1 else ""
    if (worst.shown.bad_ratio or 0) > worst.objective.budget:
        return Headline(
            "near",
            f"{name} is missed: only <b>{good}</b> of {of} in {over} were good ({target}), but"
            f" the burn rate is too low to alert{f'; {burning}' if burning else ''}.",
        )
    text = f"{first}: <b>{good}</b> of {of} in {over} were good ({target})"
    if burning:
        return Headline("near", f"{text}; but {burning}.")
    return Headline("fine", f"{text}.")


def _burning_now(each: SloState) -> str:
    pair = _shortest(each)
    factor = wording.fold(float(pair.factor))
    now = f"<b>{wording.fold(_burn_now(each))}</b>"
    return (
        f"{_name(each.objective)} burned {now} too fast in the last"
        f" {durations.render(pair.short_s)}; the alert threshold is {factor}"
    )


def _shortest(each: SloState) -> WindowPair:
    return next(iter(each.status.states))


def _burn_now(each: SloState) -> float:
    """The burn rate over the shortest window, in which a rise appears first."""
    return float(each.status.burns[_shortest(each).short_s] or 0)


def computed(answer: StoredAnswer, zone: tzinfo, seen_unix_ns: int) -> str:
    """When an incident's stored answer was computed.

    Times that are not on the day of `seen_unix_ns` are shown with their date.
    """
    text = answer.computed(lambda at_ns: wording.clock_or_date(at_ns, zone, seen_unix_ns))
    return f"<p class='note'>{wording.for_html(text, 300)}</p>"


def _filters(view: View) -> str:
    return ", ".join(
        f"{wording.for_html(name)} {wording.for_html(value)}" for name, value in view.equals.items()
    )


def _name(objective: Objective) -> str:
    return f"SLO “{wording.for_html(objective.name, 63)}”"


def _listed(names: Sequence[str]) -> str:
    named = ", ".join(names[:MAX_NAMED])
    more = len(names) - MAX_NAMED
    return named + (f" and {wording.counted(more, 'more objective')}" if more > 0 else "")


def costs(found: HourlyCost, view: View) -> str:
    """The engines' cost per hour, with a link to the Cost page."""
    href = html.escape(link(replace(view, page="cost")))
    engines = wording.counted(found.engines, "engine")
    none = "".join(
        f", {wording.counted(number, 'server')} without {what}"
        for number, what in (
            (found.unpriced, "a price"),
            (found.without_samples, "engine samples"),
        )
        if number
    )
    return (
        f"Serving costs <b>{wording.usd(found.usd)} per hour</b> ({engines}{none})."
        f" <a href='{href}'>Show costs</a>"
    )


def usual(now: Trend, before: Trend | None, view: View, zone: tzinfo) -> str:
    """Sentences that explain the charts and their shaded bands."""
    of = f"Charts show {_filters(view)} only. " if view.equals else ""
    why = " Percentiles are within 1 %, because there are too many requests to read each."
    within = why * now.rolled + wording.hidden(now.hidden)
    within += "".join(f" {each}" for each in counting_notes(now.counted_as, now.without_prefill))
    servers = view.equals.keys() & set(SERVER_LABELS)
    if now.rolled and now.counted_as is CountedAs.ENGINE_ROWS and not servers:
        within += " A shorter range has the users’ requests."
    if before is None:
        return f"{of}There is too little earlier data to show the usual range.{within}"
    start, end = (
        wording.clock(each, zone, date=True)[:-3]
        for each in (before.window.from_unix_ns, before.window.to_unix_ns)
    )
    back_ns = now.window.from_unix_ns - before.window.from_unix_ns
    which = "the selected baseline"
    if view.chosen_baseline(now.window) is None:
        which = "the previous range"
        if before.window.to_unix_ns != now.window.from_unix_ns:
            yesterday = back_ns == DAY_NS
            which = "the same time one day earlier" if yesterday else "the time before the incident"
    until = end[-5:] if start[:10] == end[:10] else end
    return (
        f"{of}Shaded: the usual range, from {which} ({start} to {until},"
        f" {wording.counted(before.number, 'request')}).{within}"
    )
