"""Read the present configuration, and predict the effect of a change."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.advice import Advised, advise
from analysis.cost import engines_usd_per_hour
from analysis.kept_predictions import keep
from analysis.recorded_traffic import NotReplayableError, Recorded
from analysis.what_if import RESAMPLED, WhatIfAnswer, WhatIfQuestion, predict, read_for
from analysis.what_if_search import SweepPoint, sweep, sweep_of
from cost.prices import PriceList
from replay.edits import EditError, Edits, edits_of
from store.errors import StoreError
from store.queries import Window, newest_unix_ns
from ui.kit.store_reads import is_simulated

_log: Final = logging.getLogger(__name__)
MOST_REPLAYED: Final = 500_000
"""Maximum number of requests to replay for the intervals of a sweep. Replaying them takes about 5 s
of CPU time. The intervals need several draws, which are replays of resampled traffic. If the range
has many requests, there are fewer draws."""
LEAST_DRAWS: Final = 8
"""Minimum number of draws for an interval. The interval is computed from the standard deviation of
the draws. With fewer draws, the error of this standard deviation is more than 25 %."""


@dataclass(frozen=True, slots=True)
class Present:
    """The present configuration. The controls begin with these values."""

    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool
    replicas: int


@dataclass(frozen=True, slots=True)
class Swept:
    """The predictions for the values of a sweep."""

    name: str
    points: Sequence[SweepPoint]
    present: float
    """The value before the change."""
    intervals: bool
    """Whether the predictions have intervals."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The data of the page. If nothing can be predicted, `problem` is the reason."""

    present: Present | None
    answer: WhatIfAnswer | None
    """The prediction of one change; None if there is no change, or if there is a sweep."""
    swept: Swept | None
    advised: Advised | None
    """The changes to try, or None if the reader already chose a change or a sweep."""
    problem: str | None
    newest_unix_ns: int | None
    simulated: bool


def read_what_if(
    engine: Engine,
    window: Window,
    equals: Mapping[str, str],
    change: str,
    sweep_text: str,
    latency: str,
    objectives: Sequence[Objective],
    prices: PriceList,
    now_unix_ns: int,
) -> Reading:
    """Fit the engines of a range, and predict the effect of the change or of each value of a sweep.

    If there is neither a change nor a sweep, predict the effects of changes to try.

    Args:
        engine: the database, from `open_database`.
        window: the range.
        equals: the labels of the requests to report.
        latency: the latency that the advice must shorten; used only without a change.
        change: texts that `replay.edits` parses, separated by commas, or an empty string for no
            change.
        sweep_text: a text that `sweep_of` parses, or an empty string for no sweep. The change
            applies to each value of the sweep.
        objectives: the current objectives.
        prices: the current prices.
        now_unix_ns: the current time. It is stored with the prediction of the change.
    """
    present, answer, found, advised, problem = None, None, None, None, None
    usd = engines_usd_per_hour(engine, window, prices)
    question = WhatIfQuestion(window, Edits(), equals, objectives, usd)
    try:
        recorded = read_for(engine, question)
        present = _present_values(recorded)
        if change:
            question = replace(question, edits=edits_of(change.split(",")))
        if sweep_text:
            found = _swept(recorded, question, sweep_text)
        elif change:
            answer = predict(recorded, question)
            _keep(engine, answer, equals, now_unix_ns)
        else:
            # No draws are needed here, because the list of changes has no intervals. The page that
            # a change links to has intervals.
            advised = advise(recorded, question, latency, draws=0)
    except (NotReplayableError, EditError) as error:
        problem = str(error)
    return Reading(
        *(present, answer, found, advised, problem),
        *(newest_unix_ns(engine), is_simulated(engine, window)),
    )


def _keep(
    engine: Engine, answer: WhatIfAnswer, equals: Mapping[str, str], now_unix_ns: int
) -> None:
    try:
        keep(engine, answer, equals, now_unix_ns)
    except StoreError as error:
        _log.warning("a prediction is not kept: %s", error)


def _swept(recorded: Recorded, question: WhatIfQuestion, text: str) -> Swept:
    over = sweep_of(text)
    each_draw = recorded.requests.num_rows * (len(over.values) + 1)
    draws = min(RESAMPLED, MOST_REPLAYED // each_draw)
    intervals = draws >= LEAST_DRAWS
    points = sweep(recorded, question, over, draws if intervals else 0)
    config = recorded.engines[0].model.engine
    return Swept(over.name, points, over.present(config, recorded.replicas), intervals)


def _present_values(recorded: Recorded) -> Present:
    config = recorded.engines[0].model.engine
    return Present(
        config.max_num_seqs,
        config.max_num_batched_tokens,
        config.enable_prefix_caching,
        len(recorded.engines),
    )
