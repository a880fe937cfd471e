"""The page "Is anyone hurt?" in words: the answer, where each promise stands, what happened.

Pure. Returns HTML in which every foreign word has been escaped.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Final

from alerts.blindness import REASONS
from alerts.burnrate import Pair
from alerts.objectives import Objective
from telemetry import durations
from ui.frame.address import link
from ui.frame.view import View
from ui.kit import wording
from ui.kit.slo_cards import SAYS
from ui.kit.slo_status import SloState
from ui.kit.terms import term
from ui.views.overview.hourly_cost import HourlyCost
from ui.views.overview.trends import DAY_NS, Trend

MOST_NAMED: Final = 3
"""Objectives, or groups of one, in a sentence."""
FEWEST: Final = 30
"""Requests; of fewer nobody knows whether a promise is kept."""

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
class Answer:
    """To the page's question: hurt, near, fine or unknown, and the sentence."""

    mood: str
    sentence: str


def answer(found: Sequence[SloState], requests: int, length_s: float, zone: tzinfo) -> Answer:
    """Whether anyone is hurt.

    Args:
        found: of at least one objective.
        requests: in the range in view, whether or not any promise speaks of them.
        length_s: the range in view.
        zone: the reader's.
    """
    hurt = [each for each in found if each.pages]
    if hurt:
        also = [each for each in found if each.burns and each not in hurt]
        return Answer("hurt", _hurt(hurt, also, zone))
    slow = [each for each in found if each.burns]
    if slow:
        return Answer("near", f"<b>Not enough to wake anyone:</b> {_burning(slow[0], zone)}")
    spent = [each for each in found if each.spent]
    if spent:
        return Answer("near", _overspent(spent))
    blind = [each for each in found if each.blind is not None]
    if blind:
        return Answer("near", _blind(blind))
    events = max(each.shown.events for each in found)
    if events < FEWEST:
        return Answer("unknown", _too_few(found, events, requests, length_s))
    doubtful = [each for each in found if each.held_back]
    if doubtful:
        return Answer("near", _doubtful(doubtful[0]))
    return _kept(found, length_s)


def of_the_past(found: Answer, silent_s: float) -> Answer:
    """The answer where no data has come for a while: never green, and of the time before."""
    mood = "unknown" if found.mood == "fine" else found.mood
    before = f"<b>Unknown for {wording.span(silent_s)}; before that:</b>"
    return Answer(mood, f"{before} {found.sentence}")


def _hurt(hurt: Sequence[SloState], also: Sequence[SloState], zone: tzinfo) -> str:
    said = "; ".join(_burning(each, zone) for each in hurt[:MOST_NAMED])
    if len(hurt) > MOST_NAMED:
        said += f"; and {wording.counted(len(hurt) - MOST_NAMED, 'more objective')}"
    rest = ""
    if also:
        rest = f" More slowly burns {_listed([_name(each.objective) for each in also])}."
    return f"<b>Yes:</b> {said}.{rest}"


def _burning(each: SloState, zone: tzinfo) -> str:
    pair = each.firing or next(iter(each.status.states))
    burn = each.status.burns[pair.long_s]
    pace = f"burns its {term('budget', 'budget')}"
    if burn is not None:
        pace += f" <b>{wording.fold(float(burn))}</b>"
    if each.open:
        first = each.open[0]
        since = wording.clock(first.row.began_unix_s * 10**9, zone)[:5]
        whom = "" if first.bad is None else f", for <b>{wording.counted(first.bad, 'request')}</b>"
        return f"{_name(each.objective)} {pace} since <b>{since}</b>{whom}"
    return f"{_name(each.objective)} {pace} (last {durations.render(pair.long_s)})"


def _overspent(spent: Sequence[SloState]) -> str:
    each = spent[0]
    period = each.objective.period_text
    over = wording.exact_percent(float(-(each.status.budget_left or 0)))
    return (
        f"<b>Not now, but</b> {_name(each.objective)} has spent its {term('budget', 'budget')} of"
        f" {period} and {over} more: what breaks the promise now breaks it for the period."
    )


def _blind(blind: Sequence[SloState]) -> str:
    each = blind[0]
    assert each.blind is not None
    name, *more = [wording.for_html(one.objective.base, 63) for one in blind]
    others = f" So are {_listed(more)}." if more else ""
    why = wording.code_html(REASONS[each.blind].why)
    return (
        f"<b>Unknown:</b> requests come in, but {name} does not count them:"
        f" {why}.{others} What to do is written below."
    )


def _too_few(found: Sequence[SloState], events: int, requests: int, length_s: float) -> str:
    of = "the promise speaks" if len(found) == 1 else "any one promise speaks"
    which = f"{wording.counted(events, 'request')} of which {of}"
    if requests > events:
        some = f"{events:,}" if events else "none"
        which = f"of {wording.counted(requests, 'request')} {of} of {some}"
    return (
        f"<b>Too little to tell:</b> {which} in {wording.span(length_s)};"
        f" it takes {FEWEST}. A longer range may have more."
    )


def _doubtful(each: SloState) -> str:
    pair = each.held_back
    assert pair is not None
    why = SAYS[each.status.states[pair]].removeprefix("held back: ")
    burn = each.status.burns[pair.long_s]
    pace = wording.fold(None if burn is None else float(burn))
    return (
        f"<b>Perhaps:</b> {_name(each.objective)} burns its {term('budget', 'budget')} {pace}"
        f" (last {durations.render(pair.long_s)}), but {why}."
    )


def _kept(found: Sequence[SloState], length_s: float) -> Answer:
    kept = "the promise is" if len(found) == 1 else f"all {len(found)} promises are"
    worst = min(
        (each for each in found if each.shown.events),
        key=lambda each: 1 - (each.shown.bad_ratio or 0) - each.objective.target,
    )
    good = wording.exact_percent(1 - float(worst.shown.bad_ratio or 0))
    of = wording.counted(worst.shown.events, "request")
    closest = "" if len(found) == 1 else f", closest {_name(worst.objective)}"
    promised = f"{worst.objective.target_written} promised"
    over = wording.span(length_s)
    hottest = max(found, key=_burn_now)
    burning = _burning_now(hottest) if _burn_now(hottest) > 1 else ""
    if (worst.shown.bad_ratio or 0) > worst.objective.budget:
        return Answer(
            "near",
            "<b>A little:</b> nothing burns fast enough to alert, but"
            f" {_name(worst.objective)} kept <b>{good}</b> of {of} in {over} ({promised})"
            f"{f'; {burning}' if burning else ''}.",
        )
    said = f"{kept} kept{closest}: <b>{good}</b> of {of} in {over} ({promised})"
    if burning:
        return Answer("near", f"<b>Not yet:</b> {said}; but {burning}.")
    return Answer("fine", f"<b>No:</b> {said}.")


def _burning_now(each: SloState) -> str:
    pair = _shortest(each)
    factor = wording.fold(float(pair.factor))
    whose = f"{_name(each.objective)}’s {term('budget', 'budget')}"
    now = f"<b>{wording.fold(_burn_now(each))}</b>"
    return f"the last {durations.render(pair.short_s)} burn {whose} {now}, and {factor} would alert"


def _shortest(each: SloState) -> Pair:
    return next(iter(each.status.states))


def _burn_now(each: SloState) -> float:
    """Over the shortest window, which is the first to tell; 0 where nothing does."""
    return float(each.status.burns[_shortest(each).short_s] or 0)


def _name(objective: Objective) -> str:
    return wording.for_html(objective.name, 63)


def _listed(names: Sequence[str]) -> str:
    named = ", ".join(names[:MOST_NAMED])
    more = len(names) - MOST_NAMED
    return named + (f" and {wording.counted(more, 'more objective')}" if more > 0 else "")


def costs(found: HourlyCost, view: View) -> str:
    """What the engines cost an hour, and the way to whom they cost it for."""
    href = html.escape(link(replace(view, page="cost")))
    engines = wording.counted(found.engines, "engine")
    none = (
        f", {wording.counted(found.unpriced, 'server')} without a price" if found.unpriced else ""
    )
    return (
        f"Serving costs <b>{wording.usd(found.usd)} an hour</b> ({engines}{none})."
        f" <a href='{href}'>Who pays for what?</a>"
    )


def held_against(now: Trend, before: Trend | None, view: View, zone: tzinfo) -> str:
    """What the charts are of, and what their shaded bands are."""
    of = ""
    if view.equals:
        labels = ", ".join(
            f"{wording.for_html(name)} {wording.for_html(value)}"
            for name, value in view.equals.items()
        )
        of = f"Of {labels} alone; promises and incidents are of the requests they speak of. "
    within = " Percentiles are within 1 %: these are too many requests to read." * now.rolled
    if before is None:
        return f"{of}There is too little from before to say what is usual.{within}"
    start, end = (
        wording.clock(each, zone, date=True)[:-3]
        for each in (before.window.from_unix_ns, before.window.to_unix_ns)
    )
    back_ns = now.window.from_unix_ns - before.window.from_unix_ns
    which = "what the address names"
    if view.baseline is None:
        which = "the same length of time before"
        if before.window.to_unix_ns != now.window.from_unix_ns:
            yesterday = back_ns == DAY_NS
            which = "the same time a day before" if yesterday else "as long a time before it burned"
    until = end[-5:] if start[:10] == end[:10] else end
    return (
        f"{of}Shaded is what is usual: {which}, {start} to {until},"
        f" {wording.counted(before.number, 'request')}.{within}"
    )
