"""Read the present configuration, and predict the effect of a change."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.advice import AdviceAnswer, advise
from analysis.cost import engines_usd_per_hour
from analysis.recorded_traffic import NotReplayableError, Recorded
from analysis.stored_data import stored_data
from analysis.stored_predictions import store_answer
from analysis.what_if import RESAMPLED, WhatIfAnswer, WhatIfQuestion, predict, read_for
from analysis.what_if_search import SweepPoint, sweep, sweep_of
from cost.prices import PriceList
from replay.edits import EditError, Edits, edits_of
from telemetry.store_errors import StoreError
from telemetry.window import Window

_log: Final = logging.getLogger(__name__)
MAX_REPLAYED: Final = 500_000
"""A sweep replays at most this many requests for its confidence intervals, in about 5 s of CPU
time."""
MIN_DRAWS: Final = 8
"""Minimum number of random draws for a confidence interval. With fewer draws, the error of the
standard deviation is more than 25 %."""


@dataclass(frozen=True, slots=True)
class PresentConfig:
    """The present configuration: the initial values of the controls."""

    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool
    replicas: int
    """Number of servers. A server may have several engines."""


@dataclass(frozen=True, slots=True)
class SweepAnswer:
    """The predictions for the values of a sweep."""

    name: str
    points: Sequence[SweepPoint]
    present: float
    intervals: bool


@dataclass(frozen=True, slots=True)
class WhatIfData:
    """The data of the page. If nothing can be predicted, `problem` is the reason."""

    present: PresentConfig | None
    answer: WhatIfAnswer | None
    """The prediction of a change, if there is no sweep."""
    swept: SweepAnswer | None
    advised: AdviceAnswer | None
    """The changes to try, if there is no change and no sweep."""
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
) -> WhatIfData:
    """Fit the engines to a range, and predict a change, a sweep, or some usual changes.

    Args:
        equals: labels of the requests whose latencies are predicted.
        change: texts for `replay.edits`, separated by commas, or an empty text.
        sweep_text: for `sweep_of`, or an empty text. The change applies to each value.
        latency: the latency that the usual changes must shorten.
        now_unix_ns: the time that is stored with a prediction.
    """
    present, answer, found, advised, problem = None, None, None, None, None
    usd = engines_usd_per_hour(engine, window, prices)
    question = WhatIfQuestion(window, Edits(), equals, objectives, usd)
    try:
        recorded = read_for(engine, question, _moves_requests(change, sweep_text))
        present = _present_values(recorded)
        if change:
            question = replace(question, edits=edits_of(change.split(",")))
        if sweep_text:
            found = _swept(recorded, question, sweep_text)
        elif change:
            answer = predict(recorded, question)
            _keep(engine, answer, equals, now_unix_ns)
        else:
            # The list of changes shows no intervals. Its links lead to pages with intervals.
            advised = advise(recorded, question, latency, draws=0)
    except (NotReplayableError, EditError) as error:
        problem = str(error)
    return WhatIfData(
        *(present, answer, found, advised, problem),
        *stored_data(engine, window),
    )


def _moves_requests(change: str, sweep_text: str) -> bool:
    if not change and not sweep_text:
        return True  # some of the usual changes set the number of replicas
    try:
        edits = edits_of(change.split(",")) if change else Edits()
        return edits.pools or (bool(sweep_text) and sweep_of(sweep_text).name == "replicas")
    except EditError:
        return True


def _keep(
    engine: Engine, answer: WhatIfAnswer, equals: Mapping[str, str], now_unix_ns: int
) -> None:
    try:
        store_answer(engine, answer, equals, now_unix_ns)
    except StoreError as error:
        _log.warning("a prediction was not stored: %s", error)


def _swept(recorded: Recorded, question: WhatIfQuestion, text: str) -> SweepAnswer:
    over = sweep_of(text)
    each_draw = recorded.requests.num_rows * (len(over.values) + 1)
    draws = min(RESAMPLED, MAX_REPLAYED // each_draw)
    intervals = draws >= MIN_DRAWS
    points = sweep(recorded, question, over, draws if intervals else 0)
    config = recorded.engines[0].model.engine
    return SweepAnswer(over.name, points, over.present(config, recorded.replicas), intervals)


def _present_values(recorded: Recorded) -> PresentConfig:
    config = recorded.engines[0].model.engine
    return PresentConfig(
        config.max_num_seqs,
        config.max_num_batched_tokens,
        config.enable_prefix_caching,
        recorded.replicas,
    )
