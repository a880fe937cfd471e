"""Compare the range with its baseline, or two values of a label."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.compare.answer import CompareAnswer, answer_compare
from analysis.compare.question import CompareError, CompareQuestion, CompareSide
from analysis.stored_data import stored_data
from telemetry.window import Window
from ui.frame.view import View

NOT_CHOSEN: Final = "Choose two values above"


@dataclass(frozen=True, slots=True)
class CompareData:
    """The data of the page. If `answer` is None, `problem` is the reason."""

    answer: CompareAnswer | None
    problem: str | None
    newest_unix_ns: int | None
    simulated: bool


def sides_of(view: View, window: Window) -> tuple[CompareSide, CompareSide] | None:
    """The requests before and after a change, or None until two label values are chosen."""
    if view.split and not (view.before and view.after):
        return None
    if not view.split:
        return CompareSide(view.baseline_of(window), view.equals), CompareSide(window, view.equals)
    before, after = (
        CompareSide(window, {**view.equals, view.split: value})
        for value in (view.before, view.after)
    )
    return before, after


def read_compare(
    engine: Engine,
    sides: tuple[CompareSide, CompareSide] | None,
    metric: str,
    quantile: str,
    objectives: Sequence[Objective],
    replay: bool,
) -> CompareData:
    """Compare the requests before and after a change. With `replay`, also compute the total change.

    `metric` is a latency such as ttft. `quantile` is p50, p95 or p99.
    """
    if sides is None:
        return CompareData(None, NOT_CHOSEN, *stored_data(engine))
    before, after = sides
    answer, problem = None, None
    try:
        question = CompareQuestion(
            *(before, after, metric, quantile),
            objectives=objectives,
        )
        answer = answer_compare(engine, question, replay)
    except CompareError as error:
        problem = str(error)
    return CompareData(answer, problem, *stored_data(engine, before.window, after.window))
