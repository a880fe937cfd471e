"""The words that the command, the pages and the alerts share. Pure."""

from typing import Final

from diagnosis.causes.registry import SUMMARIES
from diagnosis.explanation import Cause, Explanation

NAMES: Final = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl_max": "ITL max",
    "e2e": "E2E",
    "queue": "queueing",
}


def first_cause(told: Explanation) -> str | None:
    """The first cause, with its share and the first thing to try; None where there is none."""
    if not told.causes:
        return None
    first = told.causes[0]
    said = f"{first.share:.0%} of the growth of {NAMES[told.question.metric.value]}: {what(first)}."
    if first.levers:
        lever = first.levers[0]
        said += f" Try: {lever.action}{f', {lever.flag}' if lever.flag else ''}."
    return said


def what(cause: Cause) -> str:
    """What a cause is, and where it is or who drives it."""
    where = ", ".join(f"{key} {value}" for key, value in cause.where.items())
    return f"{SUMMARIES[cause.id]}{f' ({where})' if where else ''}"
