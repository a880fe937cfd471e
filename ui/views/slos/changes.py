"""What a change of the objectives would have meant, over requests that are stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from alerts.burnrate import Counts, burn
from alerts.evaluation.counting import counts_between
from alerts.objectives import Goodput, Objective
from store.queries import Window, request_count
from ui.frame.objectives import Objectives
from ui.frame.view import SECOND_NS
from ui.kit import wording

MOST_JUDGED: Final = 200_000
"""Requests, the newest; judging more takes seconds."""


@dataclass(frozen=True, slots=True)
class Change:
    """An objective as it is and as it would be; None where there is none of that name."""

    name: str
    now: Objective | None
    then: Objective | None


def changes(before: Objectives, after: Objectives) -> list[Change]:
    """What would be another promise; the names and the words around it are not compared."""
    old, new = ({each.name: each for each in one.parsed} for one in (before, after))
    return [
        Change(name, old.get(name), new.get(name))
        for name in dict.fromkeys([*old, *new])
        if _meaning(old.get(name)) != _meaning(new.get(name))
    ]


def _meaning(objective: Objective | None) -> object:
    if objective is None:
        return None
    return objective.indicator, objective.target, objective.period_s, objective.calendar


def judged_window(engine: Engine, window: Window) -> Window:
    """The newest part of a stretch that has no more requests than are judged."""
    number = request_count(engine, window)
    if number <= MOST_JUDGED:
        return window
    length_ns = window.to_unix_ns - window.from_unix_ns
    return Window(window.to_unix_ns - length_ns * MOST_JUDGED // number, window.to_unix_ns)


def judged(engine: Engine, goodput: Goodput, window: Window) -> Counts:
    """The requests that ended in a stretch, to whole seconds."""
    from_s, to_s = window.from_unix_ns // SECOND_NS, -(-window.to_unix_ns // SECOND_NS)
    if from_s >= to_s:
        return Counts(0, 0)
    return counts_between(engine, goodput, from_s, to_s)


def sentence(change: Change, now: Counts | None, then: Counts | None) -> str:
    """What it would have meant, in HTML; counts are None of what Tailspan does not count."""
    name = f"<b>{wording.for_html(change.name, 63)}</b>"
    if change.then is None:
        return f"{name} would be gone: nobody would be told when it is broken."
    if then is None:
        return f"{name} is counted by Prometheus: what it would have meant is known there."
    would = _kept(change.then, then)
    if change.now is None or now is None:
        return f"{name} is new: {would}."
    return f"{name}: now {_kept(change.now, now)}; then {would}."


def _kept(objective: Objective, counts: Counts) -> str:
    pace = burn(counts, objective.budget)
    if pace is None or counts.bad_ratio is None:
        return f"no request it speaks of ({objective.target_written} promised)"
    good = wording.exact_percent(1 - float(counts.bad_ratio))
    return (
        f"<b>{good}</b> good of {counts.events:,} {objective.counted_in}"
        f" ({objective.target_written} promised), which burns {wording.fold(float(pace))}"
    )


def lines(found: Sequence[tuple[Change, Counts | None, Counts | None]]) -> str:
    """A sentence for each."""
    return "".join(f"<p>{sentence(*each)}</p>" for each in found)
