"""Compute the cost of a time range: the bill, and comparisons with managed APIs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from sqlalchemy import Engine

from alerts.evaluation.counting import SETTLED_S, by_second, read_tally
from alerts.evaluation.evaluator import ARRIVAL_S
from alerts.evaluation.group_slots import expanded
from alerts.objectives import Goodput, Objective
from analysis.cost_sides import Sides, sides_of
from analysis.filtered_billing_data import of_replica
from cost.bill import Bill, bill
from cost.capacity import ObjectiveCounts, SustainableRate, sustainable_rate
from cost.energy import Energy, GroupEnergy, energy, energy_by_group, total_energy
from cost.groups import grouped, groups_of
from cost.managed import (
    BreakEven,
    ManagedCost,
    NoManagedPrice,
    TokenCounts,
    break_even,
    compare,
    tokens_by_model,
)
from cost.prices import PriceList
from store.alerting.slo_counts import read_counted_range
from store.billing.billed_requests import billed_requests
from store.billing.billing_data import BASE, read_billing_data
from store.queries import newest_request_unix_ns
from telemetry.billing_data import BillingCells, BillingData
from telemetry.store_errors import NotAllowed
from telemetry.window import Window

RANGE_S: Final = 300
"""Maximum length in seconds of the intervals in which `sustained_rate` checks the objectives."""
MINUTE_S: Final = 60
SECOND_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class CostQuestion:
    """The time range to bill, the labels to group by, and the prices."""

    window: Window
    prices: PriceList
    by: Sequence[str] = ()
    """Labels to group by. They may include `hour`."""
    where: Mapping[str, str | None] = field(default_factory=dict)
    """Labels that select the requests to group and compare. The value None selects requests without
    the label. Only the label `replica` also restricts the bill."""
    objectives: Sequence[Objective] = ()
    """The objectives that a sustainable request rate must meet."""
    peaks: Mapping[str, Any] = field(default_factory=dict)
    """Peak rates of devices. They override the built-in table."""


@dataclass(frozen=True, slots=True)
class SelectedRequests:
    """The requests that pass the filter."""

    requests: int
    usd: float | None
    """Cost of these requests, or None if no request has a price."""
    usd_per_hour: float | None
    """Mean cost per hour over the time in which at least one engine was up."""


@dataclass(frozen=True, slots=True)
class CostAnswer:
    """The bill of a time range, with comparisons with managed APIs."""

    billing_data: BillingData
    bill: Bill
    compared: Sequence[ManagedCost]
    not_compared: Sequence[str]
    """Why a part of the traffic has no managed price."""
    break_even: BreakEven | None
    """The request rate above which self-hosting is cheaper than a managed API. It is None if part
    of the traffic has no price. It is also None if a label other than `replica` selects the
    requests."""
    energy: Energy | None
    group_energy: Sequence[GroupEnergy | None]
    sides: Sides
    group_managed_usd: Sequence[float | None] = ()
    """The value is None for a group if one of its models has no managed price."""
    selected: SelectedRequests | None = None
    """The requests that pass the filter, or None if there is no filter."""


def answer_cost(engine: Engine, question: CostQuestion) -> CostAnswer:
    """Compute the bill of a time range, and its comparisons with managed APIs."""
    prices, where = question.prices, question.where
    labels = tuple(dict.fromkeys((*question.by, *where)))
    read = of_replica(
        read_billing_data(engine, question.window, [name for name in labels if name != "hour"]),
        where.get("replica"),
    )
    whole = bill(read, prices)
    costs = whole.costs.where(where)
    found = replace(whole, by=tuple(question.by), groups=groups_of(costs, question.by))
    cells = costs.cells
    compared, missing = managed_prices(tokens_by_model(cells), prices)
    complete = bool(compared) and not missing and not found.unpriced and set(where) <= {"replica"}
    billed = Window(read.from_unix_ns, read.to_unix_ns)
    by_replica = energy(read, prices, found.uptime)
    managed_usd = managed_usd_by(cells, question.by, prices)
    return CostAnswer(
        billing_data=read,
        bill=found,
        compared=compared,
        not_compared=missing,
        break_even=break_even(
            found.usd_per_hour,
            compared,
            sustained_rate(engine, billed, question.objectives, where.get("replica")),
        )
        if complete
        else None,
        energy=total_energy(by_replica.values()),
        group_energy=energy_by_group(found, by_replica),
        sides=sides_of(whole, read.starts, question.peaks),
        group_managed_usd=[managed_usd.get(group.labels) for group in found.groups],
        selected=_selected(found) if where else None,
    )


def engines_usd_per_hour(engine: Engine, window: Window, prices: PriceList) -> float | None:
    """The price of all engines in dollars per hour. Return None if an engine has no price, or if
    the reader may not see costs."""
    try:
        found = answer_cost(engine, CostQuestion(window, prices)).bill
    except NotAllowed:
        return None
    return None if found.unpriced or found.total is None else found.usd_per_hour


def usd_per_hour(usd: float | None, of: Bill) -> float | None:
    """Divide an amount by the hours in which at least one engine was up."""
    return None if usd is None or not of.uptime.up_s else usd / of.uptime.up_s * 3_600


def managed_usd_by(
    cells: BillingCells, by: Sequence[str], prices: PriceList
) -> dict[tuple[str | None, ...], float | None]:
    """The managed price of each group of requests.

    Args:
        cells: sums of tokens, one for each hour and combination of labels. The labels must include
            `model` and the labels in `by`.
        by: the labels that define a group. They may include `hour`.

    Returns:
        For each group's label values, the price in dollars. It is None if a model of the group has
        no managed price. Groups without tokens are left out.
    """
    names, which = grouped(cells, by)
    found: dict[tuple[str | None, ...], float | None] = {}
    for place, key in enumerate(names):
        managed, missing = managed_prices(tokens_by_model(cells.at(which == place)), prices)
        if managed or missing:
            found[key] = None if missing else sum(each.usd for each in managed)
    return found


def _selected(found: Bill) -> SelectedRequests:
    known = [group.usd for group in found.groups if group.usd is not None]
    usd = sum(known) if known else None
    requests = sum(group.requests for group in found.groups)
    return SelectedRequests(requests, usd, usd_per_hour(usd, found))


def managed_prices(
    tokens: Mapping[str | None, TokenCounts], prices: PriceList
) -> tuple[list[ManagedCost], list[str]]:
    """Return the managed price of each served model's traffic, and the reasons for which some
    traffic has no managed price."""
    found, missing = [], []
    for model, of in tokens.items():
        try:
            found.append(compare(model, of, prices))
        except NoManagedPrice as error:
            missing.append(str(error))
    return found, missing


def sustained_rate(
    engine: Engine, window: Window, objectives: Sequence[Objective], replica: str | None = None
) -> SustainableRate:
    """Return the highest rate of requests at which all objectives were met.

    The counts of the newest minutes are not stored yet, so they are computed from the rows. Only
    whole minutes for which the counts are complete are used. If an objective counts only a part of
    the requests, its rate is scaled to all requests. If the per-minute rollups were deleted, the
    number of requests is derived from the mean rate over whole hours.

    Args:
        window: begins and ends at whole minutes.
        replica: if given, the returned rate includes only the requests of this replica.
    """
    newest_ns = newest_request_unix_ns(engine)
    if newest_ns is None:
        return SustainableRate(0, None)
    start_s, end_s = _seconds(window)
    end_s = min(end_s, (newest_ns // SECOND_NS - ARRIVAL_S) // MINUTE_S * MINUTE_S)
    if end_s <= start_s:
        return SustainableRate(0, None)
    count = by_second()
    found = []
    for each in expanded(engine, objectives):
        if isinstance(each.indicator, Goodput):
            kept = read_counted_range(engine, each.indicator.digest)
            known_s = max(start_s, end_s - SETTLED_S if kept is None else kept.from_unix_s)
            tally = read_tally(engine, each.indicator, known_s, max(known_s, end_s), count)
            found.append((each, tally, max(known_s, tally.since_s or end_s)))
    if not found:
        return SustainableRate(0, None)
    _, _, known_s = max(found, key=lambda each: sum(one.good + one.bad for one in each[1].counts))
    start_s = max(start_s, -(-known_s // MINUTE_S) * MINUTE_S)
    if end_s <= start_s:
        return SustainableRate(0, None)
    starts_s = np.arange(start_s, end_s, RANGE_S)
    counts = []
    for objective, tally, _ in found:
        good, every = np.zeros(starts_s.size, np.int64), np.zeros(starts_s.size, np.int64)
        for one in tally.counts:
            if start_s < one.until_unix_s <= end_s:
                at = (one.until_unix_s - 1 - start_s) // RANGE_S
                good[at] += one.good
                every[at] += one.good + one.bad
        counts.append(ObjectiveCounts(float(objective.target), good, every))
    rate = sustainable_rate(counts, np.minimum(RANGE_S, end_s - starts_s))
    if rate.rps is None:
        return rate
    served = Window(start_s * SECOND_NS, end_s * SECOND_NS)
    billed = billed_requests(engine, served, BASE)
    cells = billed.cells
    if replica is not None:
        cells = cells.at(cells.have({"replica": replica}))
    requests = sum(each.requests for each in tokens_by_model(cells).values())
    # Without per-minute rollups, the billed requests are those of whole hours.
    in_served = requests * served.length_s / billed.window.length_s
    return replace(rate, rps=rate.rps * in_served / rate.requests)


def _seconds(window: Window) -> tuple[int, int]:
    return window.from_unix_ns // SECOND_NS, window.to_unix_ns // SECOND_NS
