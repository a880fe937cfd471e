"""The number of requests with a cost, and the cost of recomputation, by replica and tenant."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from exporters.definitions import cost_series as series
from exporters.families import counter, gauge
from exporters.format.text import Family
from exporters.totals.by_pair import FromZeroByPair
from exporters.totals.engine_bills import EngineBill
from exporters.totals.request_batch import LabelGroups, Pair, RequestBatch
from telemetry.quantiles import FloatArray
from telemetry.requests import PricedBy

EngineLabels = tuple[str, str, str]
"""Model, replica, engine."""
_METHODS: Final = tuple(PricedBy)


@dataclass(slots=True)
class Spent:
    """The number of requests for each pricing method, and the cost of recomputation."""

    requests: dict[PricedBy, int] = field(default_factory=lambda: dict.fromkeys(_METHODS, 0))
    wasted_usd: float = 0.0

    def copy(self) -> "Spent":
        """Return a copy."""
        return Spent(dict(self.requests), self.wasted_usd)

    def zero(self) -> "Spent":
        """Return 0 for every pricing method, and no cost."""
        return Spent()


class CostTotals(FromZeroByPair[Spent]):
    """The totals of every pair of labels that has a price."""

    def __init__(self) -> None:
        super().__init__(Spent)

    def add(self, under: LabelGroups, bulk: RequestBatch, usd_per_s: FloatArray) -> None:
        """Count requests that have a price.

        Args:
            usd_per_s: (requests,) price per second of each request's engine, or NaN if it is
                unknown.
        """
        priced_by = bulk.rows.column("priced_by")
        for method in _METHODS:
            by_this = np.array([each == method for each in priced_by], bool)
            for at, requests, _ in under.sums(bulk.numbers("cost_usd", by_this)):
                self.expect(under.labels[at]).requests[method] += requests
        priced = ~np.isnan(bulk.numbers("cost_usd"))
        for at, _, (usd,) in under.sums(bulk.numbers("wasted_s", priced) * usd_per_s):
            self.expect(under.labels[at]).wasted_usd += usd


def cost_families(
    by_replica: Mapping[Pair, Spent],
    by_tenant: Mapping[Pair, Spent],
    engines: Mapping[EngineLabels, EngineBill],
) -> Iterator[Family]:
    """Yield requests with a cost, the cost of recomputation, and the cost of engines."""
    if by_replica:
        yield counter(
            series.PRICED_REQUESTS,
            {
                (*pair, str(method)): number
                for pair, each in by_replica.items()
                for method, number in each.requests.items()
            },
        )
        yield counter(series.WASTED, {pair: each.wasted_usd for pair, each in by_replica.items()})
    if by_tenant:
        yield counter(
            series.TENANT_PRICED_REQUESTS,
            {pair: sum(each.requests.values()) for pair, each in by_tenant.items()},
        )
    prices = {
        labels: each.usd_per_s for labels, each in engines.items() if each.usd_per_s is not None
    }
    if prices:
        yield gauge(series.ENGINE_PRICE, prices)
    for of, values in (
        (series.ENGINE_UP, {labels: each.up_s for labels, each in engines.items()}),
        (series.ENGINE_IDLE, {labels: each.idle_s for labels, each in engines.items()}),
        (series.ENGINE_COST, {labels: each.usd for labels, each in engines.items()}),
        (series.ENGINE_IDLE_COST, {labels: each.idle_usd for labels, each in engines.items()}),
    ):
        known = {labels: value for labels, value in values.items() if value is not None}
        if known:
            yield counter(of, known)
