"""The costs of a range: the bill, the cost per group, and the cost over time.

They are computed from rollups and the engines' minutes. Only the filter by replica applies to the
bill. All filters apply to the groups.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.cost import managed_prices, sustained_rate
from analysis.cost_sides import Sides, sides_of
from analysis.filtered_billing_data import of_replica
from analysis.over_time.time_bins import SECOND_NS
from cost.bill import Bill, bill
from cost.bill_lines import BillLine, sum_lines
from cost.energy import Energy, energy, total_energy
from cost.managed import BreakEven, ManagedCost, break_even, tokens_by_model
from cost.prices import PriceList
from cost.request_costs import RequestCosts
from store.billing.billing_data import read_billing_data
from telemetry.billing_data import BillingData
from telemetry.window import Window

DIMENSIONS: Final = ("tenant", "model", "route", "replica", "outcome")
"""The labels by which the costs of a range can be grouped."""

HOUR_S: Final = 3_600
DAY_S: Final = 86_400
PIECES: Final = ((600, 60), (1_800, 180), (5_400, 300), (10_800, 900))
"""Pairs of seconds: the maximum length of a range, and the length of its time steps."""
BY_DAY_S: Final = 4 * DAY_S
"""For ranges longer than this, costs are shown for each day."""


@dataclass(frozen=True, slots=True)
class CostStep:
    """The bill and the costs of the requests in a time step.

    `line` is None if no engine was up. Steps are cut to the time in which an engine was up.
    """

    from_unix_ns: int
    to_unix_ns: int
    line: BillLine | None
    costs: RequestCosts

    @property
    def hours(self) -> float:
        """Length in hours."""
        return (self.to_unix_ns - self.from_unix_ns) / SECOND_NS / HOUR_S


@dataclass(frozen=True, slots=True)
class RangeCosts:
    """The costs of a range."""

    window: Window
    """The range in whole minutes."""
    bill: Bill
    costs: RequestCosts
    steps: Sequence[CostStep]
    compared: Sequence[ManagedCost]
    not_compared: Sequence[str]
    break_even: BreakEven | None
    """The break-even rate, or None if a price is missing or a filter excludes requests."""
    energy: Energy | None
    sides: Sides
    simulated: bool
    apportioned: bool
    engines_from_unix_ns: int
    """Start of the stored engine time. Earlier engine time was deleted."""
    overflowed: int

    @property
    def usd(self) -> float | None:
        """The requests' cost in US dollars, or None if no request has a price."""
        return self.costs.total_usd

    @property
    def requests(self) -> int:
        """Number of selected requests."""
        return int(self.costs.cells.requests.sum())


def read_spending(
    engine: Engine,
    window: Window,
    equals: Mapping[str, str],
    prices: PriceList,
    objectives: Sequence[Objective] = (),
    peaks: Mapping[str, Any] | None = None,
) -> RangeCosts:
    """The costs of a range.

    Args:
        equals: labels of the requests. A filter by replica also applies to engines.
        objectives: the SLOs that must be met at a sustainable request rate.
        peaks: the user's peaks, which override the built-in table.
    """
    replica = equals.get("replica")
    read_ = of_replica(read_billing_data(engine, window, DIMENSIONS), replica)
    billed = Window(read_.from_unix_ns, read_.to_unix_ns)
    length_s = (billed.to_unix_ns - billed.from_unix_ns) // SECOND_NS
    piece_s = next((piece for upto, piece in PIECES if length_s <= upto + 60), None)
    whole = bill(read_, prices)
    costs = whole.costs.where(equals)
    if piece_s is None:
        steps = by_hours(whole, costs, DAY_S if length_s > BY_DAY_S else HOUR_S)
    else:
        steps = []
        for each in pieces(billed, piece_s):
            # Without per-minute rollups, a step is a whole hour and contains the next pieces.
            if not steps or each.to_unix_ns > steps[-1].to_unix_ns:
                step = of_replica(read_billing_data(engine, each, DIMENSIONS), replica)
                steps.append(_cost_of_step(step, prices, equals))
    steps = [_while_up(step, whole.uptime.up_unix_ns) for step in steps]
    managed, missing = managed_prices(tokens_by_model(costs.cells), prices)
    all_in_view = set(equals) <= {"replica"} and managed and not missing and not whole.unpriced
    return RangeCosts(
        window=billed,
        bill=whole,
        costs=costs,
        steps=steps,
        compared=managed,
        not_compared=missing,
        break_even=break_even(
            whole.usd_per_hour, managed, sustained_rate(engine, billed, objectives, replica)
        )
        if all_in_view
        else None,
        energy=total_energy(energy(read_, prices, whole.uptime).values()),
        sides=sides_of(whole, read_.starts, peaks),
        simulated=read_.simulated,
        apportioned=read_.apportioned,
        engines_from_unix_ns=read_.engines_from_unix_ns,
        overflowed=read_.overflowed,
    )


def _cost_of_step(read_: BillingData, prices: PriceList, equals: Mapping[str, str]) -> CostStep:
    found = bill(read_, prices)
    return CostStep(read_.from_unix_ns, read_.to_unix_ns, found.total, found.costs.where(equals))


def _while_up(step: CostStep, up_unix_ns: tuple[int, int] | None) -> CostStep:
    """Shorten a step to the part in which at least one engine was up."""
    start, end = up_unix_ns or (0, 0)
    return replace(
        step,
        from_unix_ns=start if step.from_unix_ns < start < step.to_unix_ns else step.from_unix_ns,
        to_unix_ns=end if step.from_unix_ns < end < step.to_unix_ns else step.to_unix_ns,
    )


def pieces(window: Window, piece_s: int) -> list[Window]:
    """Divide a range at the multiples of `piece_s` seconds."""
    piece_ns = piece_s * SECOND_NS
    first = window.from_unix_ns // piece_ns + 1
    cuts = range(first * piece_ns, window.to_unix_ns, piece_ns)
    ends = [window.from_unix_ns, *cuts, window.to_unix_ns]
    return [Window(start, end) for start, end in pairwise(ends) if start < end]


def by_hours(whole: Bill, costs: RequestCosts, step_s: int) -> list[CostStep]:
    """Divide a bill into steps of `step_s` seconds (whole hours). The first and the last step may
    be shorter."""
    lines: dict[int, list[BillLine]] = defaultdict(list)
    for line in whole.lines:
        lines[line.hour_unix_s // step_s * step_s].append(line)
    starts = costs.cells.hour_unix_s // step_s * step_s
    return [
        CostStep(
            max(start * SECOND_NS, whole.from_unix_ns),
            min((start + step_s) * SECOND_NS, whole.to_unix_ns),
            sum_lines(lines[start]) if start in lines else None,
            costs.at(starts == start),
        )
        for start in sorted({*lines, *starts.tolist()})
    ]
