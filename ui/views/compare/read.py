"""Compare the selected range with its baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.compare.answer import CompareAnswer, answer_compare
from analysis.compare.question import CompareError, CompareQuestion, Side
from store.queries import Window, newest_unix_ns
from ui.kit.store_reads import is_simulated


@dataclass(frozen=True, slots=True)
class Reading:
    """The data of the page. Without an answer, `problem` is the reason."""

    answer: CompareAnswer | None
    problem: str | None
    newest_unix_ns: int | None
    simulated: bool


def read_compare(
    engine: Engine,
    window: Window,
    before: Window,
    equals: Mapping[str, str],
    metric: str,
    quantile: str,
    objectives: Sequence[Objective],
    replay: bool,
) -> Reading:
    """Compare two ranges.

    Args:
        engine: from `open_database`.
        window: the range after the change.
        before: the range before the change.
        equals: the labels of the requests to compare.
        metric: a latency, such as ttft.
        quantile: p50, p95 or p99.
        objectives: the current objectives.
        replay: whether to compute the total change by replay.
    """
    answer, problem = None, None
    try:
        question = CompareQuestion(
            *(Side(before, equals), Side(window, equals), metric, quantile),
            objectives=objectives,
        )
        answer = answer_compare(engine, question, replay)
    except CompareError as error:
        problem = str(error)
    simulated = any(is_simulated(engine, each) for each in (before, window))
    return Reading(answer, problem, newest_unix_ns(engine), simulated)
