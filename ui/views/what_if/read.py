"""Read the present configuration, and predict the effect of a change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.cost import CostQuestion, answer_cost
from analysis.recorded_traffic import NotReplayableError, Recorded, read_recorded
from analysis.what_if import WhatIfAnswer, WhatIfQuestion, columns_of_objectives, predict
from cost.prices import PriceList
from replay.edits import EditError, edits_of
from store.queries import Window, newest_unix_ns
from ui.kit.store_reads import is_simulated


@dataclass(frozen=True, slots=True)
class Present:
    """The present configuration. The controls begin with these values."""

    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool
    replicas: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The data of the page. Without a prediction, `problem` is the reason."""

    present: Present | None
    answer: WhatIfAnswer | None
    problem: str | None
    newest_unix_ns: int | None
    simulated: bool


def read_what_if(
    engine: Engine,
    window: Window,
    equals: Mapping[str, str],
    change: str,
    objectives: Sequence[Objective],
    prices: PriceList,
) -> Asked:
    """Fit the engines of a range, and predict the effect of the change if there is one.

    Args:
        engine: from `open_database`.
        window: the range.
        equals: the labels of the requests to report.
        change: texts that `replay.edits` parses, separated by commas, or an empty string for no
            change.
        objectives: the current objectives.
        prices: the current prices.
    """
    present, answer, problem = None, None, None
    try:
        beside = [*equals, *columns_of_objectives(objectives)]
        recorded = read_recorded(engine, window, beside)
        present = _present(recorded)
        if change:
            bill = answer_cost(engine, CostQuestion(window, prices)).bill
            usd = None if bill.unpriced or bill.total is None else bill.usd_per_hour
            edits = edits_of(change.split(","))
            answer = predict(recorded, WhatIfQuestion(window, edits, equals, objectives, usd))
    except (NotReplayableError, EditError) as error:
        problem = str(error)
    return Asked(present, answer, problem, newest_unix_ns(engine), is_simulated(engine, window))


def _present(recorded: Recorded) -> Present:
    config = recorded.engines[0].model.engine
    return Present(
        config.max_num_seqs,
        config.max_num_batched_tokens,
        config.enable_prefix_caching,
        len(recorded.engines),
    )
