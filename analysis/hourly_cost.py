"""The engines' current cost per hour."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine

from analysis.filtered_billing_data import of_replica
from analysis.over_time.time_bins import SECOND_NS
from cost.bill import Bill, bill
from cost.prices import PriceList
from store.billing.billing_data import read_billing_data
from telemetry.store_errors import NotAllowed
from telemetry.window import Window

LOOKBACK_NS = 120 * SECOND_NS
"""Length of the range to read. An engine sends at least two samples in this time."""


@dataclass(frozen=True, slots=True)
class HourlyCost:
    """The hourly cost in US dollars of the engines that have a price, and the number of these
    engines."""

    usd: float
    engines: int
    unpriced: int
    """Servers that were up and have no price."""
    without_samples: int
    """Servers with requests but without engine samples. Their cost is unknown."""


def hourly_cost(
    engine: Engine, window: Window, equals: Mapping[str, str], prices: PriceList
) -> HourlyCost | None:
    """The cost per hour at the end of a range.

    It is None if no engine has a price, or if the reader's role does not allow costs.
    """
    end = Window(max(window.from_unix_ns, window.to_unix_ns - LOOKBACK_NS), window.to_unix_ns)
    try:
        read = read_billing_data(engine, end)
    except NotAllowed:
        return None
    found = bill(of_replica(read, equals.get("replica")), prices)
    if not found.rates:
        return None
    number = max(1, round(found.engines))
    up = sum(each.wall_s > 0 for each in found.unpriced)
    return HourlyCost(found.usd_per_hour, number, up, len(found.unpriced) - up)


def recent_bill(engine: Engine, newest_unix_ns: int, length_ns: int, prices: PriceList) -> Bill:
    """The bill of the latest `length_ns`."""
    window = Window(max(0, newest_unix_ns - length_ns), newest_unix_ns)
    return bill(read_billing_data(engine, window), prices)
