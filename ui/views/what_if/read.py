"""The What if page's reads: the present arguments, and the prediction for a change."""

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
    """The arguments in force, which the controls begin with."""

    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool
    replicas: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The data of the page. `problem` is why there is no prediction, or None."""

    present: Present | None
    answer: WhatIfAnswer | None
    advised: Advised | None
    """Changes to try; None if there is a change."""
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
    """Fit the engines of a range, and predict the change. Without one, predict changes to try.

    Args:
        engine: from `open_database`.
        window: the range.
        equals: labels of the reported requests.
        latency: without a change, the latency that the advice shortens.
        change: texts of `replay.edits`, separated by commas; empty for none.
        objectives: those in force.
        prices: the current ones.
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
            # Without draws: the link to a change shows its interval.
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
