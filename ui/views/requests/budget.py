"""The section of the Requests page about a latency budget."""

import os
from pathlib import Path
from typing import Final

import streamlit as st

from alerts.errors import DocumentError
from analysis.budget.answer import BudgetQuestion, answer_budget
from analysis.budget.budget import LatencyBudget
from analysis.budget.budget_file import preset, read_budget
from ui.frame import controls
from ui.frame.context import Context
from ui.frame.view import BUDGETS, NO_BUDGET, OWN_BUDGET
from ui.kit import wording
from ui.kit.sections import chapter, paragraph
from ui.views.requests.budget_table import html_of

KEY: Final = "TAILSPAN_BUDGET"
"""The environment variable with the path of the reader's budget file."""
HELP: Final = (
    "A latency budget limits a latency, and the time of each layer, such as network or queue. The"
    " table compares it with the slowest requests of the range: those beyond the budget's"
    " percentile."
)
NAMES: Final = {NO_BUDGET: "no budget", OWN_BUDGET: "your file"}
TOO_MANY: Final = (
    "The range has too many requests to divide the time of each into layers. Choose a shorter "
    "range."
)


def show(context: Context, *, too_many: bool) -> None:
    """Draw a choice of budgets, and how the slow requests spent the chosen budget.

    `too_many` means that the range has too many requests to read.
    """
    with chapter("Latency budget", HELP):
        budgets = _budgets_to_choose(context.view.budget)
        controls.setting("budget", "Latency budget", budgets, lambda name: NAMES.get(name, name))
        if context.view.budget == NO_BUDGET:
            return
        try:
            budget = _budget(context.view.budget)
        except DocumentError as error:
            paragraph(wording.for_html(str(error), 500), "notice")
            return
        if budget is None:
            paragraph(f"Set {KEY} to the path of a budget file.")
        elif too_many:
            paragraph(TOO_MANY)
        else:
            question = BudgetQuestion(budget, context.window, context.view.equals)
            answer = context.shared(lambda: answer_budget(context.engine, question), repr(budget))
            st.html(html_of(answer))


def _budgets_to_choose(chosen: str) -> list[str]:
    """The budgets to choose from.

    The reader's own budget is included if its file is configured, or if the address names it.
    """
    own = bool(os.environ.get(KEY, "").strip()) or chosen == OWN_BUDGET
    return [each for each in BUDGETS if own or each != OWN_BUDGET]


def _budget(name: str) -> LatencyBudget | None:
    if name != OWN_BUDGET:
        return preset(name)
    path = os.environ.get(KEY, "").strip()
    return read_budget(Path(path)) if path else None
