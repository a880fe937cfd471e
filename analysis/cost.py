"""The cost of a time range: the bill, and what it is compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Engine

from alerts.objectives import Goodput, Objective
from alerts.places import expanded
from cost.bill import Bill, bill
from cost.capacity import ObjectiveCounts, SustainableRate, sustainable_rate
from cost.energy import Energy, GroupEnergy, energy, energy_by_group, total_energy
from cost.managed import (
    BreakEven,
    Comparison,
    NoManagedPrice,
    Tokens,
    break_even,
    compare,
    tokens_by_model,
)
from cost.prices import PriceList
from store.alerting.slo_counts import read_counts
from store.billing.accounts import accounts
from store.queries import Window
from telemetry.accounts import Accounts

RANGE_S: Final = 300
"""Length of the time ranges in which request rates are measured against the objectives."""


@dataclass(frozen=True, slots=True)
class CostQuestion:
    """Which time range to bill, how to group it, and at which prices."""

    window: Window
    prices: PriceList
    by: Sequence[str] = ()
    """Labels to group by, which may include `hour`."""
    objectives: Sequence[Objective] = ()
    """Those that a rate must meet to be sustainable."""


@dataclass(frozen=True, slots=True)
class CostAnswer:
    """The bill of a time range, and what it is compared with."""

    accounts: Accounts
    bill: Bill
    compared: Sequence[Comparison]
    not_compared: Sequence[str]
    """Why some traffic has no managed price."""
    break_even: BreakEven | None
    """None if something has no price."""
    energy: Energy | None
    group_energy: Sequence[GroupEnergy | None]
    """Of each of the bill's groups."""


def answer_cost(engine: Engine, question: CostQuestion) -> CostAnswer:
    """Compute the bill of a time range and its comparisons."""
    prices = question.prices
    read = accounts(engine, question.window, [name for name in question.by if name != "hour"])
    found = bill(read, prices, question.by)
    compared, missing = managed_prices(tokens_by_model(read.cells), prices)
    complete = bool(compared) and not missing and not found.unpriced
    billed = Window(read.from_unix_ns, read.to_unix_ns)
    by_replica = energy(read, prices, found.uptime)
    return CostAnswer(
        accounts=read,
        bill=found,
        compared=compared,
        not_compared=missing,
        break_even=break_even(
            found.usd_per_hour, compared, sustained_rate(engine, billed, question.objectives)
        )
        if complete
        else None,
        energy=total_energy(by_replica.values()),
        group_energy=energy_by_group(found, by_replica),
    )


def managed_prices(
    tokens: Mapping[str | None, Tokens], prices: PriceList
) -> tuple[list[Comparison], list[str]]:
    """Return the managed price of each model's traffic, and why some of it has none.

    Args:
        tokens: by model.
        prices: with the managed models configured for served ones.
    """
    found, missing = [], []
    for model, of in tokens.items():
        try:
            found.append(compare(model, of, prices))
        except NoManagedPrice as error:
            missing.append(str(error))
    return found, missing


def sustained_rate(
    engine: Engine, window: Window, objectives: Sequence[Objective]
) -> SustainableRate:
    """Return the highest rate at which all objectives were met, from the stored counts."""
    start_s, end_s = window.from_unix_ns // 10**9, window.to_unix_ns // 10**9
    first = start_s // RANGE_S
    number = max(1, -(-end_s // RANGE_S) - first)
    counts = []
    for objective in expanded(engine, objectives):
        if not isinstance(objective.indicator, Goodput):
            continue
        good, every = np.zeros(number, np.int64), np.zeros(number, np.int64)
        for each in read_counts(engine, objective.indicator.digest, start_s, end_s):
            at = min(max((each.until_unix_s - 1) // RANGE_S - first, 0), number - 1)
            good[at] += each.good
            every[at] += each.good + each.bad
        counts.append(ObjectiveCounts(float(objective.target), good, every))
    return sustainable_rate(counts, RANGE_S)
