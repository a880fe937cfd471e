"""Compare the parts of the slow requests' latency with a latency budget. Pure.

The tail is the slowest requests: for P95, the slowest 5 %. The mean latency of the tail is the sum
of the mean times of the parts.

Source: expected-shortfall allocation, Tasche 1999.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from analysis.budget.budget import (
    AROUND,
    LAYERS,
    PARTS,
    PERCENTILES,
    UNASSIGNED,
    LatencyBudget,
    parts_of,
)
from analysis.budget.measured_parts import parts_in
from diagnosis.latency.tail import MIN_TAIL_REQUESTS
from telemetry.quantiles import FloatArray, nearest_rank, quantile

MAX_NAMED: Final = 3
"""Maximum number of layers in a sentence."""


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """One layer of the budget, or one operation of a layer (`before.tool`).

    Attributes:
        layer: the layer, or `unassigned`.
        spent_s: the layer's mean time in the tail, or None if unknown.
        operations: the mean time of each operation, for a layer of the application.
        within_s: the latency's percentile, if the layer had kept its budget in each request. It is
            None if the layer does not overspend.
    """

    layer: str
    budget_s: float | None
    spent_s: float | None
    operations: Mapping[str, float]
    within_s: float | None = None

    @property
    def over_s(self) -> float | None:
        """The seconds by which the layer exceeds its budget.

        It is None if the layer has no budget or its time is unknown.
        """
        if self.budget_s is None or self.spent_s is None:
            return None
        return max(0.0, self.spent_s - self.budget_s)


@dataclass(frozen=True, slots=True)
class BudgetSpending:
    """The mean time that each layer used in the tail.

    Attributes:
        lines: each layer, each operation with a budget, and `unassigned`. The budget of
            `unassigned` is the rest of the total. Its time is the time without a budget.
        total_s, mean_s: these values leave out the layers whose time is unknown.
        within_ratio: the share of requests within `total_s`.
    """

    lines: Sequence[BudgetLine]
    requests: int
    tail_requests: int
    total_s: float
    percentile_s: float
    mean_s: float
    within_ratio: float

    @property
    def assigned(self) -> bool:
        """Whether the budget sets a limit for at least one layer or operation."""
        return any(line.budget_s is not None and line.layer != UNASSIGNED for line in self.lines)

    @property
    def largest(self) -> Sequence[BudgetLine]:
        """Up to three layers with the most time, the longest first."""
        spent = [line for line in self.lines if line.spent_s and line.layer != UNASSIGNED]
        return sorted(spent, key=lambda line: -(line.spent_s or 0.0))[:MAX_NAMED]

    @property
    def worst(self) -> BudgetLine | None:
        """The layer that overspends most, or None if no layer overspends."""
        over = [line for line in self.lines if line.over_s and line.layer != UNASSIGNED]
        over = over or [line for line in self.lines if line.over_s]
        return max(over, key=lambda line: line.over_s or 0.0, default=None)


def min_requests(percentile: str) -> int:
    """The smallest number of requests whose tail has at least `MIN_TAIL_REQUESTS` requests."""
    share = _share(percentile)
    return next(
        number for number in range(1, 10**6) if ceil(number * share - 1e-9) >= MIN_TAIL_REQUESTS
    )


def spend(budget: LatencyBudget, seconds: FloatArray, known: Sequence[str]) -> BudgetSpending:
    """Return how much of the budget each layer used in the tail.

    Args:
        seconds: (n, parts) the seconds that each request spent in each part; n is at least 1.
    """
    latency_s = seconds[:, parts_in(known)].sum(axis=1)
    number = ceil(latency_s.size * _share(budget.percentile) - 1e-9)
    tail = np.argsort(-latency_s, kind="stable")[:number]
    means = seconds[tail].mean(axis=0)
    q = PERCENTILES[budget.percentile]

    def line(name: str, parts: Sequence[int], budget_s: float | None) -> BudgetLine:
        spent_s = float(means[parts].sum())
        within_s = None
        if budget_s is not None and spent_s > budget_s:
            over = np.maximum(seconds[:, parts].sum(axis=1) - budget_s, 0.0)
            within_s = quantile(latency_s - over, q)
        operations = {
            PARTS[place].partition(".")[2]: float(means[place])
            for place in parts
            if name in AROUND and means[place] > 0
        }
        return BudgetLine(name, budget_s, spent_s, operations, within_s)

    lines, assigned, rest = [], set[int](), list[int]()
    unknown_ns = 0
    for layer in LAYERS:
        named = {
            name: ns for name, ns in budget.layers_ns.items() if name.partition(".")[0] == layer
        }
        if layer not in known:
            unknown_ns += sum(named.values())
            lines += [BudgetLine(name, ns / 1e9, None, {}) for name, ns in named.items()]
            continue
        for name, ns in named.items():
            places = [PARTS.index(part) for part in parts_of(name)]
            assigned |= set(places)
            lines.append(line(name, places, ns / 1e9))
        left = [place for place in parts_in([layer]) if place not in assigned]
        if left and (layer not in AROUND or means[left].any()):
            lines.append(line(layer, left, None))
        rest += left
    lines.append(line(UNASSIGNED, rest, budget.unassigned_ns / 1e9))
    total_s = (budget.total_ns - unknown_ns) / 1e9
    return BudgetSpending(
        lines=lines,
        requests=int(latency_s.size),
        tail_requests=number,
        total_s=total_s,
        percentile_s=float(np.sort(latency_s)[nearest_rank(latency_s.size, q) - 1]),
        mean_s=float(latency_s[tail].mean()),
        within_ratio=float((latency_s <= total_s).mean()),
    )


def _share(percentile: str) -> float:
    return 1.0 - PERCENTILES[percentile]
