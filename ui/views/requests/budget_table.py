"""How the slow requests spent a budget, as HTML. External text is escaped."""

from collections.abc import Iterator
from typing import Final

from analysis.budget.answer import BudgetAnswer, BudgetVerdict
from analysis.budget.budget import UNASSIGNED
from analysis.budget.levers import command
from analysis.budget.sentences import finding, layer_name, notes, reductions
from analysis.budget.spending import BudgetLine, BudgetSpending
from ui.kit import wording
from ui.kit.tables import table

HEAD: Final = ("layer", "budget", "slowest requests", "over")
_LONGEST: Final = 600


def html_of(answer: BudgetAnswer) -> str:
    """The finding, the table of layers, and how much shorter each layer must become."""
    spending, budget = answer.spending, answer.question.budget
    source = f"Budget: {budget.source}." if budget.source else ""
    sentences = [finding(answer, wording.seconds), *notes(answer, wording.seconds)]
    parts = [f"<p>{wording.for_html(sentences[0], _LONGEST)}</p>"]
    if spending is not None:
        parts.append(_table(spending))
        sentences.append(
            f"Each value is a mean over the slowest {spending.tail_requests:,} requests, so the"
            " layers sum to the mean latency of these requests."
        )
    parts += [f"<p class='note'>{wording.for_html(each, _LONGEST)}</p>" for each in sentences[1:]]
    parts += _reductions(answer)
    if source:
        parts.append(f"<p class='note'>{wording.for_html(source, _LONGEST)}</p>")
    return "".join(parts)


def _table(spending: BudgetSpending) -> str:
    rows = [cells for line in spending.lines for cells in _rows(line)]
    rows.append(
        (
            "sum",
            wording.seconds(spending.total_s),
            wording.seconds(spending.mean_s),
            _excess_text(spending.mean_s - spending.total_s),
        )
    )
    escaped = [[wording.for_html(cell) for cell in cells] for cells in rows]
    return table(HEAD, escaped, "short")


def _rows(line: BudgetLine) -> Iterator[tuple[str, str, str, str]]:
    name = layer_name(line.layer)
    if line.budget_s is None:
        name = f"{name} (in {UNASSIGNED})"
    spent = "unknown" if line.spent_s is None else wording.seconds(line.spent_s)
    yield name, wording.seconds(line.budget_s), spent, _excess_text(line.over_s)
    for operation, spent_s in line.operations.items():
        yield f"– {operation}", "", wording.seconds(spent_s), ""


def _excess_text(over_s: float | None) -> str:
    return wording.signed_seconds(over_s) if over_s is not None and over_s > 0 else ""


def _reductions(answer: BudgetAnswer) -> Iterator[str]:
    if answer.verdict is not BudgetVerdict.OVER:
        return
    for layer, sentence in reductions(answer, wording.seconds):
        yield f"<p>{wording.for_html(sentence, _LONGEST)}</p>"
        if predicts := command(layer, answer.question, answer.replicas):
            yield (
                "<p class='note'>Predict a change:"
                f" <code>{wording.for_html(predicts, _LONGEST)}</code></p>"
            )
