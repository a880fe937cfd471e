"""Read the latency thresholds of objectives, for the diagnosis. Pure.

An objective has a threshold if its `good` requires `latency <= number` for every request. Its
filter must use only fields in `_COUNTED`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from alerts.explorer_links import LATENCIES
from alerts.expression import (
    And,
    Expression,
    FieldComparison,
    IsUnknown,
    Not,
    Or,
    comparisons,
    conjuncts,
)
from alerts.objectives import Goodput, Objective
from diagnosis.inputs.requests import LABELS, BoolArray, Requests
from diagnosis.latency.attainment import LatencyThreshold
from diagnosis.question import Metric

_COUNTED: Final = (*LABELS, "streamed", "prompt_tokens")


def thresholds(objectives: Iterable[Objective], metric: Metric) -> list[LatencyThreshold]:
    """The thresholds of a latency, in the objectives' order."""
    return [
        LatencyThreshold(
            objective.name,
            seconds,
            float(objective.budget),
            _Counts(goodput.where),
            whole=len(tuple(conjuncts(goodput.good))) == 1,
        )
        for objective, goodput in _with_countable_filters(objectives)
        if (seconds := _seconds(goodput, metric)) is not None
    ]


def metrics_of(goodput: Goodput) -> tuple[Metric, ...]:
    """The distinct latencies in the condition `good` of an objective."""
    fields = dict.fromkeys(leaf.field for leaf in comparisons(goodput.good))
    return tuple(Metric(LATENCIES[field]) for field in fields if field in LATENCIES)


def _with_countable_filters(objectives: Iterable[Objective]) -> Iterator[tuple[Objective, Goodput]]:
    for each in objectives:
        goodput = each.indicator
        if isinstance(goodput, Goodput):
            where = comparisons(goodput.where) if goodput.where else ()
            if all(leaf.field in _COUNTED for leaf in where):
                yield each, goodput


def _seconds(goodput: Goodput, metric: Metric) -> float | None:
    found = [
        float(each.value)
        for each in conjuncts(goodput.good)
        if isinstance(each, FieldComparison)
        and LATENCIES.get(each.field) == metric.value
        and each.operator in ("<", "<=")
    ]
    return min(found, default=None)


class _Counts:
    """Selects the requests of an objective. A comparison with an unknown value is unknown."""

    def __init__(self, where: Expression | None) -> None:
        self._where = where

    def __call__(self, requests: Requests) -> BoolArray:
        if self._where is None:
            return np.ones(len(requests), dtype=np.bool_)
        return _evaluate(self._where, requests)[0]


def _evaluate(expression: Expression, requests: Requests) -> tuple[BoolArray, BoolArray]:
    """Return two masks (n,): the requests for which an expression is true, and the requests for
    which it is false. For all other requests, the value is unknown."""
    match expression:
        case Not(operand):
            true, false = _evaluate(operand, requests)
            return false, true
        case And(operands):
            found = [_evaluate(each, requests) for each in operands]
            return (
                np.logical_and.reduce([true for true, _ in found]),
                np.logical_or.reduce([false for _, false in found]),
            )
        case Or(operands):
            found = [_evaluate(each, requests) for each in operands]
            return (
                np.logical_or.reduce([true for true, _ in found]),
                np.logical_and.reduce([false for _, false in found]),
            )
        case IsUnknown(field):
            known = _known_mask(field, requests)
            return ~known, known
        case FieldComparison():
            known, true = _known_mask(expression.field, requests), _compared(expression, requests)
            return known & true, known & ~true


def _known_mask(field: str, requests: Requests) -> BoolArray:
    if field in LABELS:
        return np.asarray(requests.label(field).codes >= 0)
    return np.isfinite(requests.number(field))


def _compared(comparison: FieldComparison, requests: Requests) -> BoolArray:
    if comparison.field in LABELS:
        same = requests.label(comparison.field).is_value(str(comparison.value))
        return same if comparison.operator == "==" else ~same
    values, constant = requests.number(comparison.field), float(comparison.value)
    with np.errstate(invalid="ignore"):
        compared: dict[str, BoolArray] = {
            "<": values < constant,
            "<=": values <= constant,
            ">": values > constant,
            ">=": values >= constant,
            "==": values == constant,
            "!=": values != constant,
        }
    return compared[comparison.operator]
