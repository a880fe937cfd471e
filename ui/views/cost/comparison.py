"""What is held against a bill: managed prices of the same tokens, and the rate that is kept."""

from collections.abc import Mapping, Sequence

import numpy as np
from sqlalchemy import Engine

from alerts.objectives import Goodput, Objective
from alerts.places import expanded
from cost.capacity import ObjectiveCounts, SustainableRate, sustainable_rate
from cost.managed import Comparison, NoManagedPrice, Tokens, compare
from cost.prices import PriceList
from store.alerting.slo_counts import read_counts
from store.queries import Window

KEPT_S = 300
"""Stretches in which a rate is held against the objectives."""


def compared(
    tokens: Mapping[str | None, Tokens], prices: PriceList
) -> tuple[list[Comparison], list[str]]:
    """The managed price of each model's traffic, and why some of it has none.

    Args:
        tokens: by model.
        prices: with the managed models that stand for served ones.
    """
    found, missing = [], []
    for model, of in tokens.items():
        try:
            found.append(compare(model, of, prices))
        except NoManagedPrice as error:
            missing.append(str(error))
    return found, missing


def kept(engine: Engine, window: Window, objectives: Sequence[Objective]) -> SustainableRate:
    """The highest rate at which the objectives were all kept, as far as `tailspan up` counted."""
    start_s, end_s = window.from_unix_ns // 10**9, window.to_unix_ns // 10**9
    first = start_s // KEPT_S
    number = max(1, -(-end_s // KEPT_S) - first)
    judged = []
    for objective in expanded(engine, objectives):
        if not isinstance(objective.indicator, Goodput):
            continue
        good, every = np.zeros(number, np.int64), np.zeros(number, np.int64)
        for each in read_counts(engine, objective.indicator.digest, start_s, end_s):
            at = min(max((each.until_unix_s - 1) // KEPT_S - first, 0), number - 1)
            good[at] += each.good
            every[at] += each.good + each.bad
        judged.append(ObjectiveCounts(float(objective.target), good, every))
    return sustainable_rate(judged, KEPT_S)
