"""Find objectives that are valid but probably not intended. Pure."""

from collections.abc import Iterator
from typing import Final

from alerts.explorer_links import LATENCIES
from alerts.expression import And, Expression, FieldComparison, Or, render
from alerts.fields import PROBE_DURATIONS
from alerts.objectives import GoodEvents, Objective

LONGEST_LIMIT_S: Final = 600.0
"""OpenAI's clients time out after ten minutes (the default of openai-python). If a limit is higher,
its author probably meant milliseconds."""


def notes(objective: Objective) -> Iterator[str]:
    """Yield a note for each latency limit that is inverted or too high."""
    if not isinstance(objective.indicator, GoodEvents):
        return
    for limit in _limits(objective.indicator.good):
        if limit.operator in (">", ">="):
            yield (
                f"{objective.name}: {render(limit)} counts slow requests as good; write a limit as"
                f" {limit.field} <= {limit.written}"
            )
        elif isinstance(limit.value, int | float) and limit.value > LONGEST_LIMIT_S:
            yield (
                f"{objective.name}: {render(limit)} is never missed; latencies are in seconds:"
                " 500 ms is 0.5"
            )


def _limits(good: Expression) -> Iterator[FieldComparison]:
    """Yield the comparisons of latencies, except those inside a `not`."""
    match good:
        case And(operands) | Or(operands):
            for operand in operands:
                yield from _limits(operand)
        case FieldComparison(field=field) if field in LATENCIES or field in PROBE_DURATIONS:
            yield good
