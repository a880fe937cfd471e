"""Compute the cost of requests, as one value for each cell. Pure.

A cell is the sum of the requests with the same labels in one hour.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cost.bill_lines import RequestPrice
from cost.charges import WeighedTokens, are_lost
from cost.replica_hours import Key, ReplicaHours
from cost.weights import BY_PRICE, TokenWeights
from telemetry.billing_data import BillingCells, BoolArray
from telemetry.counter_series import FloatArray


@dataclass(frozen=True, slots=True)
class RequestCosts:
    """The cost of the requests in each cell: (cells,)."""

    cells: BillingCells
    hours: ReplicaHours
    weighed: WeighedTokens
    priced: BoolArray
    by_tokens: BoolArray
    """Whether the cost is divided in proportion to weighted tokens, because the plugin reports no
    seconds."""
    usd: FloatArray
    """Cost without `wasted_usd`, or 0 if there is no price."""
    wasted_usd: FloatArray
    engine_s: FloatArray
    """Billed and wasted seconds that the plugin reports, or 0 if it reports no seconds."""
    lost: BoolArray
    in_shares: FloatArray
    """The part of an hour's cost that counts as the cost of input if the hour has no tokens:
    (keys,)."""

    def at(self, chosen: BoolArray) -> "RequestCosts":
        """Select the cells for which `chosen` is true."""
        return replace(
            self,
            cells=self.cells.at(chosen),
            hours=self.hours._replace(which=self.hours.which[chosen]),
            weighed=WeighedTokens(*(each[chosen] for each in self.weighed)),
            priced=self.priced[chosen],
            by_tokens=self.by_tokens[chosen],
            usd=self.usd[chosen],
            wasted_usd=self.wasted_usd[chosen],
            engine_s=self.engine_s[chosen],
            lost=self.lost[chosen],
        )

    def where(self, equals: Mapping[str, str | None]) -> "RequestCosts":
        """Select the cells with these labels."""
        return self.at(self.cells.have(equals)) if equals else self

    @property
    def total_usd(self) -> float | None:
        """Cost including waste, or None if no request has a price."""
        if not self.priced.any():
            return None
        return float(self.usd.sum() + self.wasted_usd.sum())


def costs_of(
    cells: BillingCells,
    hours: ReplicaHours,
    weighed: WeighedTokens,
    pricing: Mapping[Key, RequestPrice],
    weights: Mapping[Key, TokenWeights],
) -> RequestCosts:
    """The cost of the requests in each cell.

    Args:
        pricing: the price of requests for each replica and hour. Replicas without a price are
            absent.
    """
    nan = float("nan")
    prices = [pricing.get(key) for key in hours.keys]
    per_s = np.array([nan if each is None else each.usd_per_s for each in prices])[hours.which]
    per_weight = np.array(
        [
            nan if each is None or each.usd_per_weight is None else each.usd_per_weight
            for each in prices
        ]
    )[hours.which]
    priced, by_tokens = ~np.isnan(per_s), ~np.isnan(per_weight)
    by_ledger = priced & ~by_tokens
    billed_s, wasted_s = cells.sums["billed_s"], cells.sums["wasted_s"]
    by_seconds = np.where(by_ledger, billed_s * per_s, 0.0)
    return RequestCosts(
        cells=cells,
        hours=hours,
        weighed=weighed,
        priced=priced,
        by_tokens=by_tokens,
        usd=np.where(by_tokens, (weighed.input + weighed.output) * per_weight, by_seconds),
        wasted_usd=np.where(by_ledger, wasted_s * per_s, 0.0),
        engine_s=np.where(by_ledger, billed_s + wasted_s, 0.0),
        lost=are_lost(cells),
        in_shares=np.array(
            [weights.get(key, BY_PRICE).in_share or 0.0 for key in hours.keys], float
        ),
    )
