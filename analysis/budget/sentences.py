"""The sentences about a budget that the command and the page share. Pure."""

from collections.abc import Callable, Iterator
from typing import Final

from analysis.budget.answer import BudgetAnswer, BudgetVerdict
from analysis.budget.budget import UNASSIGNED
from analysis.budget.measured_parts import Extent
from telemetry.percentages import percent
from telemetry.printable import first_upper

Seconds = Callable[[float | None], str]

NAMES: Final = {"ttft": "TTFT", "e2e": "E2E"}
LAYER_NAMES: Final = {
    "before": "before the model",
    "network": "network",
    "frontend": "front end",
    "queue": "queue",
    "prefill": "prefill",
    "decode": "decode",
    "delivery": "delivery",
    "after": "after the model",
    UNASSIGNED: UNASSIGNED,
}

_LEFT_OUT: Final = {
    "not_streamed": "answers that were not streamed have no first token before their end",
    "unanswered": "requests without a complete answer",
    "without_phases": "requests whose phases are unknown",
    "without_client_span": "requests without the spans of their client or application",
}


def layer_name(layer: str) -> str:
    """The name of a layer, such as `before the model: tool`."""
    name, _, operation = layer.partition(".")
    return f"{LAYER_NAMES[name]}: {operation}" if operation else LAYER_NAMES[name]


def finding(answer: BudgetAnswer, seconds: Seconds) -> str:
    """The finding as one sentence."""
    budget, spending = answer.question.budget, answer.spending
    name = f"{NAMES[budget.latency]} {budget.percentile.upper()}"
    if spending is None:
        counted = max(answer.measured.values())
        return (
            f"Not enough requests: {counted:,} whose {NAMES[budget.latency]} is divided into"
            f" layers; {budget.percentile.upper()} needs at least {answer.needed:,}."
        )
    within = (
        f"{percent(spending.within_ratio, 1, ' %')} of {spending.requests:,} requests are within it"
    )
    whole = all(each.spent_s is not None for each in spending.lines)
    which = "the budget" if whole else "the budget without the unknown layers"
    text = f"{name} is {seconds(spending.percentile_s)}; {which} is {seconds(spending.total_s)}"
    if answer.verdict is BudgetVerdict.WITHIN:
        return f"{text}. It is met: {within}."
    text = (
        f"{text}. It is exceeded by {seconds(spending.percentile_s - spending.total_s)}: {within}."
    )
    if not spending.assigned:
        largest = ", ".join(
            f"{layer_name(each.layer)} {seconds(each.spent_s)}" for each in spending.largest
        )
        return (
            f"{text} The budget names no layer. The largest in the slowest"
            f" {spending.tail_requests:,} requests: {largest}."
        )
    worst = spending.worst
    if worst is None:
        return text
    return (
        f"{text} {first_upper(layer_name(worst.layer))} overspends most,"
        f" by {seconds(worst.over_s)} in the slowest {spending.tail_requests:,} requests."
    )


def notes(answer: BudgetAnswer, seconds: Seconds) -> Iterator[str]:
    """Sentences about the layers and requests that the answer does not cover."""
    budget, spending = answer.question.budget, answer.spending
    unknown = [] if spending is None else [each for each in spending.lines if each.spent_s is None]
    if unknown:
        layers = ", ".join(layer_name(each.layer) for each in unknown)
        missing_s = sum(each.budget_s or 0.0 for each in unknown)
        yield (
            f"Unknown: {layers}. {_why_unknown(answer)} So {seconds(missing_s)} of the budget of"
            f" {seconds(budget.total_ns / 1e9)} is not compared."
        )
    for reason, number in answer.left_out.items():
        yield f"Left out: {number:,} {_LEFT_OUT[reason]}."


def _why_unknown(answer: BudgetAnswer) -> str:
    number = answer.measured[Extent(answer.extent + 1)]
    which = (
        "the span of their client"
        if answer.extent is Extent.SERVER
        else "spans of the application around the call"
    )
    have = f"Only {number:,} requests have" if number else "No request has"
    return f"{have} {which}; at least {answer.needed:,} are needed."


def reductions(answer: BudgetAnswer, seconds: Seconds) -> Iterator[tuple[str, str]]:
    """Yield each layer that overspends, with a sentence on the reduction that it needs.

    The layer that overspends most comes first. If the percentile is within the budget, nothing is
    yielded."""
    spending = answer.spending
    if spending is None or answer.verdict is not BudgetVerdict.OVER or not spending.assigned:
        return
    name = answer.question.budget.percentile.upper()
    for line in sorted(spending.lines, key=lambda each: -(each.over_s or 0.0)):
        if line.over_s and line.spent_s:
            share = percent(line.over_s / line.spent_s, 0, " %")
            yield (
                line.layer,
                f"{first_upper(layer_name(line.layer))} must fall by {seconds(line.over_s)}"
                f" ({share}) to stay within its budget. If it had done so in each request and"
                f" nothing else had changed, {name} would be {seconds(line.within_s)}.",
            )
