"""Objectives that are valid and probably not what their author means. Pure."""

from collections.abc import Iterator
from typing import Final

from alerts.explorer_links import LATENCIES
from alerts.expression import And, Comparison, Expression, Or, render
from alerts.objectives import Goodput, Objective

LONGEST_LIMIT_S: Final = 600.0
"""OpenAI's clients give up after ten minutes: above that no limit is missed, and the author
probably means milliseconds. Source: the default timeout of openai-python."""


def notes(objective: Objective) -> Iterator[str]:
    """Yield a sentence for each limit on a latency that is inverted or out of scale."""
    if not isinstance(objective.indicator, Goodput):
        return
    for limit in _limits(objective.indicator.good):
        if limit.operator in (">", ">="):
            yield (
                f"{objective.name}: by {render(limit)} the slow requests are the good ones; a limit"
                f" is written {limit.field} <= {limit.written}"
            )
        elif isinstance(limit.value, int | float) and limit.value > LONGEST_LIMIT_S:
            yield (
                f"{objective.name}: {render(limit)} is never missed; latencies are in seconds:"
                f" 500 ms is 0.5"
            )


def _limits(good: Expression) -> Iterator[Comparison]:
    """The comparisons of latencies; what stands behind a `not` means the opposite and is left."""
    match good:
        case And(operands) | Or(operands):
            for operand in operands:
                yield from _limits(operand)
        case Comparison(field=field) if field in LATENCIES:
            yield good
