"""Describe an objective as plain text, which the caller must escape. Pure."""

from collections.abc import Sequence
from typing import Final

from alerts.expression import And, Expression, FieldComparison, render
from alerts.objectives import GoodEvents, Objective, RawRatio
from ui.kit import wording

_LIMITS: Final = {
    "ttft_s": "first token {}",
    "tpot_s": "{} per token",
    "e2e_s": "whole answer {}",
    "queue_s": "queue {}",
    "itl_max_s": "longest gap between tokens {}",
    "wait_s": "whole wait {}",
    "first_content_s": "first content {}",
    "first_event_s": "first event {}",
}
_SIGNS: Final = {"<=": "≤", "<": "<", ">=": "≥", ">": ">"}


def target(objective: Objective) -> str:
    """The objective as text, such as `99 % of requests: first token ≤ 500 ms, over 30 d`."""
    over = f"over {objective.period_text}"
    each = f", for each {', '.join(objective.by)}" if objective.by else ""
    indicator = objective.indicator
    if not isinstance(indicator, GoodEvents):
        what = "of the time" if isinstance(indicator, RawRatio) else "of events"
        return f"{objective.target_written} {what} good{each}, {over}"
    whole = indicator.part.whole if indicator.part else indicator
    which = f" with {where(whole.where)}" if whole.where is not None else ""
    events = f"{whole.rows}{which}: {criterion(whole.good)}"
    if slices := whole.slices:
        events = f"slices of {slices.length} with {slices.target_written} of {events}"
    return f"{objective.target_written} of {events}{each}, {over}"


def criterion(good: Expression) -> str:
    """The criterion of a good request, such as `first token ≤ 500 ms, then ≤ 50 ms per token`."""
    parts = good.operands if isinstance(good, And) else (good,)
    limits = [each for each in parts if _is_limit(each)]
    if len(limits) < len(parts):
        return render(good)
    texts = [_limit(each) for each in parts if isinstance(each, FieldComparison)]
    fields = [each.field for each in parts if isinstance(each, FieldComparison)]
    if fields == ["ttft_s", "tpot_s"]:
        return f"{texts[0]}, then {texts[1]}"
    return ", ".join(texts)


def where(which: Expression) -> str:
    """The condition that selects the counted requests, such as `streamed true`."""
    parts: Sequence[Expression] = which.operands if isinstance(which, And) else (which,)
    if not all(isinstance(each, FieldComparison) and each.operator == "==" for each in parts):
        return render(which)
    named = [(each.field, str(each.value)) for each in parts if isinstance(each, FieldComparison)]
    return " and ".join(
        f"{field} {value.lower() if value in ('True', 'False') else value}"
        for field, value in named
    )


def _is_limit(part: Expression) -> bool:
    return (
        isinstance(part, FieldComparison)
        and part.field in _LIMITS
        and part.operator in _SIGNS
        and isinstance(part.value, int | float)
    )


def _limit(part: FieldComparison) -> str:
    limit = f"{_SIGNS[part.operator]} {wording.tick_seconds(float(part.value))}"
    return _LIMITS[part.field].format(limit)
