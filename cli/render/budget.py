"""The answer about a latency budget as text."""

from collections.abc import Iterator

from analysis.budget.answer import BudgetAnswer
from analysis.budget.budget import UNASSIGNED
from analysis.budget.levers import command
from analysis.budget.sentences import NAMES, finding, layer_name, notes, reductions
from analysis.budget.spending import BudgetLine, BudgetSpending
from cli.render import text


def lines(answer: BudgetAnswer) -> list[str]:
    """The answer. The first line states the finding."""
    question = answer.question
    budget = question.budget
    printed = [finding(answer, text.seconds)]
    printed.append(
        f"Budget {text.label(budget.name)}: {NAMES[budget.latency]}"
        f" {budget.percentile.upper()} within {text.seconds(budget.total_ns / 1e9)}"
        + (f" ({text.printable(budget.source, 300)})" if budget.source else "")
    )
    labels = "".join(f", {key}={text.label(value or '')}" for key, value in question.equals.items())
    printed.append(f"{answer.requests:,} requests received {text.span(question.window)}{labels}")
    if answer.simulated:
        printed.append("simulated data")
    printed += notes(answer, text.seconds)
    if answer.spending is not None:
        printed += ["", *_table(answer.spending), ""]
        printed.append(
            f"Each value is a mean over the slowest {answer.spending.tail_requests:,} requests, all"
            f" at or above {budget.percentile.upper()}. So the layers sum to the mean latency of"
            f" these requests, which is longer than {budget.percentile.upper()}."
        )
        printed += _reductions(answer)
    return printed


def _table(spending: BudgetSpending) -> list[str]:
    rows = []
    for line in spending.lines:
        rows.append(_row(line))
        rows += [
            [f"  {operation}", "", text.seconds(spent_s), ""]
            for operation, spent_s in line.operations.items()
        ]
    over_s = spending.mean_s - spending.total_s
    rows.append(
        [
            "sum",
            text.seconds(spending.total_s),
            text.seconds(spending.mean_s),
            f"+{text.seconds(over_s)}" if over_s > 0 else "",
        ]
    )
    return text.table(["layer", "budget", "slowest", "over"], rows, left=1, keep=4)


def _row(line: BudgetLine) -> list[str]:
    name = layer_name(line.layer)
    if line.budget_s is None:
        name = f"{name} (no budget: in {UNASSIGNED})"
    over_s = line.over_s
    return [
        name,
        text.seconds(line.budget_s),
        "unknown" if line.spent_s is None else text.seconds(line.spent_s),
        f"+{text.seconds(over_s)}" if over_s else "",
    ]


def _reductions(answer: BudgetAnswer) -> Iterator[str]:
    for layer, sentence in reductions(answer, text.seconds):
        yield ""
        yield sentence
        if predicts := command(layer, answer.question, answer.replicas):
            yield f"  Predict a change: {predicts}"
