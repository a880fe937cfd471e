"""The effect of a changed objective on stored requests. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from alerts.burnrate import EventCounts, burn
from alerts.objectives import Objective
from ui.frame.objectives import Objectives
from ui.kit import wording


@dataclass(frozen=True, slots=True)
class ObjectiveChange:
    """A changed objective. `now` is None if the objective is added. `then` is None if it is
    removed."""

    name: str
    now: Objective | None
    then: Objective | None


def changes(before: Objectives, after: Objectives) -> list[ObjectiveChange]:
    """The objectives that were added or removed, or whose indicator, target or period changed."""
    old, new = ({each.name: each for each in one.parsed} for one in (before, after))
    return [
        ObjectiveChange(name, old.get(name), new.get(name))
        for name in dict.fromkeys([*old, *new])
        if _definition(old.get(name)) != _definition(new.get(name))
    ]


def _definition(objective: Objective | None) -> object:
    if objective is None:
        return None
    return objective.indicator, objective.target, objective.period_s, objective.calendar


def sentence(change: ObjectiveChange, now: EventCounts | None, then: EventCounts | None) -> str:
    """The effect of a change as HTML, from the counts before and after the change.

    A count is None if there is no objective, or if Tailspan does not count the objective's
    requests.
    """
    name = f"<b>{wording.for_html(change.name, 63)}</b>"
    if change.then is None:
        return f"{name} would be removed, together with its alerts."
    if then is None:
        return f"{name} is counted by Prometheus, so its effect cannot be computed here."
    would = _kept(change.then, then)
    if change.now is None or now is None:
        return f"{name} is new: {would}."
    return f"{name}: now {_kept(change.now, now)}; then {would}."


def _kept(objective: Objective, counts: EventCounts) -> str:
    pace = burn(counts, objective.budget)
    if pace is None or counts.bad_ratio is None:
        return f"no request counts for it (target {objective.target_written})"
    good = wording.exact_percent(1 - float(counts.bad_ratio))
    return (
        f"<b>{good}</b> good of {counts.events:,} {objective.counted_in}"
        f" (target {objective.target_written}), a burn rate of {wording.fold(float(pace))}"
    )


def lines(found: Sequence[tuple[ObjectiveChange, EventCounts | None, EventCounts | None]]) -> str:
    """A sentence for each change."""
    return "".join(f"<p>{sentence(*each)}</p>" for each in found)
