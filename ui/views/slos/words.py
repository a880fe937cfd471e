"""The texts of the SLOs page. Pure HTML. External text is escaped."""

from collections.abc import Sequence
from typing import Final

from analysis.slo_states import SloState
from ui.kit import wording

MAX_NAMED: Final = 3


def sentence(found: Sequence[SloState], defined: int) -> str:
    """The numbers of objectives that burn too fast, that have spent their budget, and that are
    within budget.

    `found` has a state for each group of a counted objective. `defined` counts all objectives.
    """
    number = wording.counted(defined, "SLO")
    burning = [each for each in found if each.burns]
    if burning:
        return f"<b>{number}, {len(burning)} burning too fast:</b> {_names_with_budget(burning)}."
    spent = [each for each in found if each.spent]
    if spent:
        names = _names_with_budget(spent)
        return f"<b>{number}, {len(spent)} with its error budget spent:</b> {names}."
    blind = [each for each in found if each.blind is not None]
    if blind:
        return (
            f"<b>{number}, {len(blind)} cannot count the requests:</b> {_names_with_budget(blind)}."
        )
    counted = [each for each in found if each.status.period.events]
    if not counted:
        return f"<b>{number}</b>; no request has been counted yet."
    left = min(each.status.budget_left or 0 for each in counted)
    least = wording.exact_percent(float(left))
    return f"<b>{number}</b>, all within their error budget: at least {least} left."


def _names_with_budget(found: Sequence[SloState]) -> str:
    named = [
        f"{wording.for_html(each.objective.name, 63)}"
        + (
            ""
            if each.status.budget_left is None
            else f" ({wording.exact_percent(float(each.status.budget_left))} of its budget left)"
        )
        for each in found[:MAX_NAMED]
    ]
    more = len(found) - MAX_NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")
