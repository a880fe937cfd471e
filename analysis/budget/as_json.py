"""The answer about a budget as JSON."""

from typing import Any

from analysis.budget.answer import BudgetAnswer, BudgetVerdict
from analysis.budget.levers import command
from analysis.budget.measured_parts import Extent
from analysis.budget.spending import BudgetLine


def as_json(answer: BudgetAnswer) -> dict[str, Any]:
    """The answer as a JSON object, with None for unknown values."""
    question, spending = answer.question, answer.spending
    budget, window = question.budget, question.window
    worst = None if spending is None else spending.worst
    return {
        "verdict": answer.verdict.value,
        "budget": {
            "name": budget.name,
            "latency": budget.latency,
            "percentile": budget.percentile,
            "total_s": budget.total_ns / 1e9,
            "layers_s": {layer: ns / 1e9 for layer, ns in budget.layers_ns.items()},
            "unassigned_s": budget.unassigned_ns / 1e9,
            "source": budget.source,
        },
        "from_unix_s": window.from_unix_ns / 1e9,
        "to_unix_s": window.to_unix_ns / 1e9,
        "simulated": answer.simulated,
        "requests": answer.requests,
        "left_out": dict(answer.left_out),
        "with_network": answer.measured[Extent.NETWORK],
        "with_application": answer.measured[Extent.APPLICATION],
        "extent": answer.extent.name.lower(),
        "requests_counted": None if spending is None else spending.requests,
        "requests_needed": answer.needed,
        "tail_requests": None if spending is None else spending.tail_requests,
        "total_counted_s": None if spending is None else spending.total_s,
        "percentile_s": None if spending is None else spending.percentile_s,
        "within_ratio": None if spending is None else spending.within_ratio,
        "tail_mean_s": None if spending is None else spending.mean_s,
        "worst_layer": None if worst is None else worst.layer,
        "layers": [] if spending is None else [_line(each, answer) for each in spending.lines],
    }


def _line(line: BudgetLine, answer: BudgetAnswer) -> dict[str, Any]:
    over_s = line.over_s
    reduce = over_s and answer.verdict is BudgetVerdict.OVER
    return {
        "layer": line.layer,
        "budget_s": line.budget_s,
        "spent_s": line.spent_s,
        "over_s": over_s,
        "operations_s": dict(line.operations),
        "percentile_within_s": line.within_s,
        "predict": command(line.layer, answer.question, answer.replicas) if reduce else None,
    }
