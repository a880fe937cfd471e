"""Read the present configuration, and predict the effect of a change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.advice import Advised, advise
from analysis.cost import engines_usd_per_hour
from analysis.recorded_traffic import NotReplayableError, Recorded
from analysis.what_if import WhatIfAnswer, WhatIfQuestion, predict, read_for
from cost.prices import PriceList
from replay.edits import EditError, Edits, edits_of
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
    advised: Advised | None
    """The changes to try, or None if the reader already chose a change."""
    problem: str | None
    newest_unix_ns: int | None
    simulated: bool


def read_what_if(
    engine: Engine,
    window: Window,
    equals: Mapping[str, str],
    change: str,
    latency: str,
    objectives: Sequence[Objective],
    prices: PriceList,
) -> Asked:
    """Fit the engines of a range, and predict the effect of the change.

    Without a change, predict the effects of changes to try.

    Args:
        engine: from `open_database`.
        window: the range.
        equals: the labels of the requests to report.
        latency: the latency that the advice must shorten; used only without a change.
        change: texts that `replay.edits` parses, separated by commas, or an empty string for no
            change.
        objectives: the current objectives.
        prices: the current prices.
    """
    present, answer, advised, problem = None, None, None, None
    usd = engines_usd_per_hour(engine, window, prices)
    question = WhatIfQuestion(window, Edits(), equals, objectives, usd)
    try:
        recorded = read_for(engine, question)
        present = _present(recorded)
        if change:
            answer = predict(recorded, replace(question, edits=edits_of(change.split(","))))
        else:
            # No draws are needed, because the link to a change shows the intervals.
            advised = advise(recorded, question, latency, draws=0)
    except (NotReplayableError, EditError) as error:
        problem = str(error)
    return Asked(
        present, answer, advised, problem, newest_unix_ns(engine), is_simulated(engine, window)
    )


def _present(recorded: Recorded) -> Present:
    config = recorded.engines[0].model.engine
    return Present(
        config.max_num_seqs,
        config.max_num_batched_tokens,
        config.enable_prefix_caching,
        len(recorded.engines),
    )
