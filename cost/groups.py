"""Compute the cost of requests with the same labels, and of their input and output tokens. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cost.request_costs import RequestCosts
from telemetry.billing_data import BillingCells, BoolArray
from telemetry.counter_series import FloatArray, IntArray
from telemetry.requests import PricedBy


@dataclass(slots=True)
class BillGroup:
    """Requests with the same labels. `usd` is None if no request has a price."""

    labels: tuple[str | None, ...]
    requests: int = 0
    unpriced: int = 0
    """Number of requests on servers without a price."""
    usd: float | None = None
    """Total cost, including waste."""
    lost_usd: float = 0.0
    wasted_usd: float = 0.0
    engine_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    in_usd: float = 0.0
    out_usd: float = 0.0
    priced_by: set[PricedBy] = field(default_factory=set)
    usd_of: dict[str, float] = field(default_factory=dict)
    """The part of `usd` for each replica."""

    @property
    def priced(self) -> int:
        """Number of requests on servers with a price."""
        return self.requests - self.unpriced

    @property
    def usd_per_request(self) -> float | None:
        """Mean cost of a request with a price, including waste."""
        return self.usd / self.priced if self.usd is not None and self.priced else None

    @property
    def usd_per_1k_in(self) -> float | None:
        """Cost per thousand input tokens, including cached tokens.

        It is None if some requests have no price, because the tokens of all requests are counted.
        """
        return self._per_1k(self.in_usd, self.prompt_tokens)

    @property
    def usd_per_1k_out(self) -> float | None:
        """Cost per thousand output tokens, or None if some requests have no price."""
        return self._per_1k(self.out_usd, self.output_tokens)

    def _per_1k(self, usd: float, tokens: int) -> float | None:
        if self.unpriced or self.usd is None or not tokens or not self.in_usd + self.out_usd:
            return None
        return usd / tokens * 1_000


def groups_of(costs: RequestCosts, by: Sequence[str]) -> list[BillGroup]:
    """Group requests by labels. Sort the groups by cost, or by labels if `by` contains `hour`."""
    names, which = grouped(costs.cells, by)
    sums, ledger = costs.cells.sums, costs.cells.reported["billed_s"] != 0

    def total(values: FloatArray | IntArray | BoolArray) -> FloatArray:
        return np.bincount(which, values, len(names)).astype(float)

    def count(values: FloatArray | IntArray) -> IntArray:
        return total(values).astype(np.int64)

    in_usd, out_usd, usd_of = _split(costs, which, len(names))
    priced = total(costs.priced) > 0
    columns = (
        count(costs.cells.requests),
        count(costs.cells.requests * ~costs.priced),
        total(costs.usd + costs.wasted_usd),
        total(costs.usd * costs.lost),
        total(costs.wasted_usd),
        total(costs.engine_s),
        count(sums["prompt_tokens"]),
        count(sums["cached_tokens"]),
        count(sums["output_tokens"]),
        in_usd,
        out_usd,
    )
    methods = {
        PricedBy.TOKENS: total(costs.by_tokens) > 0,
        PricedBy.LEDGER: total(costs.priced & ~costs.by_tokens & ledger) > 0,
    }
    found = []
    for place, values in enumerate(zip(*(each.tolist() for each in columns), strict=True)):
        group = BillGroup(names[place], *values)
        group.usd = group.usd if priced[place] else None
        group.priced_by = {method for method, used in methods.items() if used[place]}
        group.usd_of = usd_of[place]
        if group.requests or group.usd:
            found.append(group)
    if "hour" in by:
        return sorted(found, key=lambda each: [str(label) for label in each.labels])
    return sorted(
        found,
        key=lambda each: (-(each.usd or 0.0), -each.requests, [str(x) for x in each.labels]),
    )


def grouped(
    cells: BillingCells, by: Sequence[str]
) -> tuple[list[tuple[str | None, ...]], IntArray]:
    """The labels of each group, and the index of each cell's group: (cells,)."""
    columns = [(each, list(cells.by).index(each)) for each in by if each != "hour"]
    numbers: dict[tuple[str | None, ...], int] = {}
    of_labels = [
        numbers.setdefault(tuple(labels[place] for _, place in columns), len(numbers))
        for labels in cells.labels
    ]
    which = np.array(of_labels, np.int64)[cells.group]
    if "hour" not in by:
        return list(numbers), which
    hours, hour = np.unique(cells.hour_unix_s, return_inverse=True)
    pairs, which = np.unique(which * hours.size + hour, return_inverse=True)
    names, at = list(numbers), list(by).index("hour")
    found = []
    for each in pairs.tolist():
        labels = names[each // hours.size]
        found.append((*labels[:at], str(hours[each % hours.size]), *labels[at:]))
    return found, which


def _split(
    costs: RequestCosts, which: IntArray, number: int
) -> tuple[FloatArray, FloatArray, list[dict[str, float]]]:
    """Return each group's cost of input, cost of output, and cost on each replica.

    The cost of each replica and hour is divided separately. Tokens belong to the hour in which
    their request was received. If an hour has no tokens, the prefill share of its step time is
    used.
    """
    keys = costs.hours.keys
    pairs, pair = np.unique(which * len(keys) + costs.hours.which, return_inverse=True)
    group, key = pairs // max(1, len(keys)), pairs % max(1, len(keys))

    def total(values: FloatArray | BoolArray) -> FloatArray:
        return np.bincount(pair, values, pairs.size).astype(float)

    usd = total(costs.usd)
    went_in = total(costs.weighed.input * costs.priced)
    weight = went_in + total(costs.weighed.output * costs.priced)
    share = np.where(weight > 0, went_in / np.where(weight > 0, weight, 1.0), costs.in_shares[key])
    in_usd = np.bincount(group, usd * share, number).astype(float)
    out_usd = np.bincount(group, usd - usd * share, number).astype(float)
    usd_of: list[dict[str, float]] = [{} for _ in range(number)]
    priced = total(costs.priced) > 0
    whole = usd + total(costs.wasted_usd)
    for mine, at, dollars in zip(
        group[priced].tolist(), key[priced].tolist(), whole[priced].tolist(), strict=True
    ):
        replica = keys[at][0] or ""
        usd_of[mine][replica] = usd_of[mine].get(replica, 0.0) + dollars
    return in_usd, out_usd, usd_of
