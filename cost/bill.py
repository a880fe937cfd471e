"""Compute the bill: the cost of the time of all engines, divided into five parts. Pure.

    bill = R·wall = requests + wasted + idle + loading + unbilled

R is an engine's price per second. `wall` is the number of seconds that the engine was up. The
README defines the parts. The bill uses current prices. For hours without engine data, it contains
only `requests` and `wasted`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cost.bill_lines import BillLine, RequestPrice, line_of, sum_lines
from cost.charges import Charge, charges_of, weighed_tokens
from cost.engine_costs import EngineCost, engine_costs
from cost.engine_rates import EngineRates
from cost.groups import BillGroup, groups_of
from cost.prices import EnginePrice, PriceList
from cost.replica_hours import Key, replica_hours
from cost.request_costs import RequestCosts, costs_of
from cost.uptime import Uptime, uptime_of
from cost.weights import TokenWeights, by_replica_hour
from telemetry.billing_data import BillingData


class Unpriced(NamedTuple):
    """A server without a price. `device` is None if the device is unknown."""

    replica: str
    device: str | None
    wall_s: float
    requests: int


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of a time range."""

    from_unix_ns: int
    to_unix_ns: int
    by: tuple[str, ...]
    lines: Sequence[BillLine]
    by_engine: Sequence[EngineCost]
    groups: Sequence[BillGroup]
    costs: RequestCosts
    rates: Mapping[str, Sequence[EnginePrice]]
    unpriced: Sequence[Unpriced]
    weights: Mapping[Key, TokenWeights]
    uptime: Uptime

    @property
    def total(self) -> BillLine | None:
        """The sum of all lines, or None if there are no lines."""
        return sum_lines(self.lines) if self.lines else None

    @property
    def engines(self) -> float:
        """Mean number of engines up, over the time in which at least one engine was up."""
        return self._wall_s / self.uptime.up_s if self.uptime.up_s else 0.0

    @property
    def usd_per_hour(self) -> float:
        """Mean cost of all engines per hour, over the time in which at least one engine was up."""
        if not self.uptime.up_s:  # each engine has only one sample
            return sum(rate.usd_per_hour for rates in self.rates.values() for rate in rates)
        usd = sum(line.bill_usd for line in self.lines if line.wall_s)
        return usd / self.uptime.up_s * 3_600

    @property
    def _wall_s(self) -> float:
        return sum(line.wall_s for line in self.lines)


def bill(billing_data: BillingData, prices: PriceList, by: Sequence[str] = ()) -> Bill:
    """Compute the bill.

    Args:
        billing_data: its `cells` must have all labels in `by`.
        by: labels to group by, possibly with `hour`.
    """
    uptime = uptime_of(
        billing_data.engines,
        billing_data.from_unix_ns,
        billing_data.to_unix_ns,
        billing_data.starts,
    )
    engine_rates = EngineRates(billing_data, prices, uptime)
    cells, hours = billing_data.cells, replica_hours(billing_data.cells)
    weights = by_replica_hour(uptime, cells, hours)
    weighed = weighed_tokens(cells, hours, weights)
    charges = dict(zip(hours.keys, charges_of(cells, hours, weighed), strict=True))
    lines, pricing = [], {}
    for key in sorted({*_keys(uptime), *charges}, key=lambda each: (each[1], each[0] or "")):
        engine_data_deleted = key[1] * 10**9 < billing_data.engines_from_unix_ns
        found = line_of(
            key,
            uptime,
            charges.get(key, Charge()),
            engine_rates,
            engine_data_deleted=engine_data_deleted,
        )
        if found is not None:
            pricing[key] = found
            if found.line is not None:
                lines.append(found.line)
    costs = costs_of(cells, hours, weighed, pricing, weights)
    return Bill(
        from_unix_ns=billing_data.from_unix_ns,
        to_unix_ns=billing_data.to_unix_ns,
        by=tuple(by),
        lines=lines,
        by_engine=engine_costs(uptime, engine_rates, billing_data.engines_from_unix_ns),
        groups=groups_of(costs, by),
        costs=costs,
        rates=engine_rates.latest(),
        unpriced=_unpriced(uptime, charges, engine_rates, pricing),
        weights=weights,
        uptime=uptime,
    )


def _keys(uptime: Uptime) -> Iterator[Key]:
    for (replica, _), hour in uptime.hours:
        yield replica, hour


def _unpriced(
    uptime: Uptime,
    charges: Mapping[Key, Charge],
    engine_rates: EngineRates,
    pricing: Mapping[Key, RequestPrice],
) -> list[Unpriced]:
    wall: dict[str, float] = defaultdict(float)
    device: dict[str, str | None] = {}
    requests: dict[str, int] = defaultdict(int)
    for (engine, hour), each in uptime.hours.items():
        if engine_rates.rate(engine, hour) is None:
            wall[engine[0]] += each.wall_s
            device[engine[0]] = engine_rates.device(engine, hour)[0]
    for (replica, hour), charge in charges.items():
        if (replica, hour) not in pricing:
            requests[replica or ""] += charge.requests
    names = sorted({*wall, *(name for name, number in requests.items() if number)})
    return [Unpriced(name, device.get(name), wall[name], requests[name]) for name in names]
