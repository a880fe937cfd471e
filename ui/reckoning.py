"""What is held against a bill: managed prices of the same tokens, and the rate that is kept."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine

from alerts.objectives import Goodput, Objective
from cost.managed import Comparison, Judged, NoManagedPrice, Tokens, compare, kept_rps
from cost.prices import PriceList
from store.queries import Window
from store.slo_counts import read_counts

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


def kept(engine: Engine, window: Window, objectives: Sequence[Objective]) -> float | None:
    """The highest rate at which the objectives were all kept, as far as `tailspan up` counted."""
    start_s, end_s = window.from_unix_ns // 10**9, window.to_unix_ns // 10**9
    stretches: dict[int, list[Judged]] = {}
    for objective in objectives:
        if not isinstance(objective.indicator, Goodput):
            continue
        sums: dict[int, tuple[int, int]] = {}
        for each in read_counts(engine, objective.indicator.digest, start_s, end_s):
            at = (each.until_unix_s - 1) // KEPT_S
            good, every = sums.get(at, (0, 0))
            sums[at] = (good + each.good, every + each.good + each.bad)
        for at, (good, every) in sums.items():
            stretches.setdefault(at, []).append(Judged(good, every, objective.target))
    return kept_rps(stretches.values(), KEPT_S)
