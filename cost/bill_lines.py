"""The cost of a replica in one hour, divided into its parts. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cost.charges import Charge
from cost.engine_rates import EngineRates
from cost.replica_hours import Key
from cost.uptime import Uptime
from telemetry.requests import PricedBy


@dataclass(slots=True)
class BillLine:
    """The cost of one replica in one hour. `bill_usd` is the sum of `requests_usd`, `wasted_usd`,
    `idle_usd`, `loading_usd` and `unbilled_usd`. If idle time is unknown, `idle_usd` is None, and
    `requests_usd` includes the cost of idle time."""

    replica: str
    hour_unix_s: int
    engines: int
    requests: int
    wall_s: float
    busy_s: float | None
    bill_usd: float
    requests_usd: float
    lost_usd: float
    """The part of `requests_usd` for requests whose responses were not delivered."""
    wasted_usd: float
    idle_usd: float | None
    unbilled_usd: float
    priced_by: PricedBy | None
    loading_usd: float = 0.0


def sum_lines(lines: Iterable[BillLine]) -> BillLine:
    """The sum of one or more lines. The sum has an empty replica and the earliest hour."""
    several = list(lines)
    known_idle = [each.idle_usd for each in several if each.idle_usd is not None]
    known_busy = [each.busy_s for each in several if each.busy_s is not None]
    methods = {each.priced_by for each in several if each.priced_by is not None}
    return BillLine(
        replica="",
        hour_unix_s=min(each.hour_unix_s for each in several),
        engines=sum({each.replica: each.engines for each in several}.values()),
        requests=sum(each.requests for each in several),
        wall_s=sum(each.wall_s for each in several),
        busy_s=sum(known_busy) if known_busy else None,
        bill_usd=sum(each.bill_usd for each in several),
        requests_usd=sum(each.requests_usd for each in several),
        lost_usd=sum(each.lost_usd for each in several),
        wasted_usd=sum(each.wasted_usd for each in several),
        idle_usd=sum(known_idle) if known_idle else None,
        loading_usd=sum(each.loading_usd for each in several),
        unbilled_usd=sum(each.unbilled_usd for each in several),
        priced_by=methods.pop() if len(methods) == 1 else None,
    )


class RequestPrice(NamedTuple):
    """The price of requests on one replica in one hour."""

    line: BillLine | None
    usd_per_s: float
    usd_per_weight: float | None
    """Price per weighted token, or None if the plugin reports the seconds of each request."""


def line_of(
    key: Key,
    uptime: Uptime,
    charge: Charge,
    engine_rates: EngineRates,
    *,
    engine_data_deleted: bool,
) -> RequestPrice | None:
    """Return the price of a replica's requests in one hour, and its bill line. Return None without
    a price."""
    replica, hour = key
    rated = [
        (rate, None if engine_data_deleted else uptime.hours.get((engine, hour)))
        for engine in engine_rates.engines(replica)
        if (rate := engine_rates.rate(engine, hour)) is not None
    ]
    if not rated or replica is None:
        return None
    there = [(rate.usd_per_s, each) for rate, each in rated if each is not None]
    wall_s = sum(each.wall_s for _, each in there)
    bill_usd = sum(usd * each.wall_s for usd, each in there)
    loading_usd = sum(usd * each.loading_s for usd, each in there)
    busy = [(usd, each.busy_s) for usd, each in there]
    reported = [(usd, busy_s) for usd, busy_s in busy if busy_s is not None]
    busy_s = sum(s for _, s in reported) if reported and len(reported) == len(busy) else None
    busy_usd = sum(usd * s for usd, s in reported) if busy_s is not None else None
    usd_per_s = (
        busy_usd / busy_s
        if busy_s and busy_usd is not None
        else bill_usd / wall_s
        if wall_s
        else sum(rate.usd_per_s for rate, _ in rated) / len(rated)
    )
    method: PricedBy | None = PricedBy.LEDGER if charge.ledger else None
    usd_per_weight = None
    if charge.ledger:
        requests_usd = charge.billed_s * usd_per_s
        wasted_usd = charge.wasted_s * usd_per_s
        lost_usd = charge.lost_s * usd_per_s
    else:
        requests_usd = wasted_usd = lost_usd = 0.0
        if charge.weight > 0:
            method = PricedBy.TOKENS
            requests_usd = bill_usd - loading_usd if busy_usd is None else busy_usd
            usd_per_weight = requests_usd / charge.weight
            lost_usd = usd_per_weight * charge.lost_weight
    idle_usd: float | None
    if engine_data_deleted:
        if method is not PricedBy.LEDGER:
            return None  # neither the engine's time nor the requests' seconds are known
        bill_usd, idle_usd, unbilled_usd = requests_usd + wasted_usd, None, 0.0
    elif busy_usd is not None:
        # the difference can be negative only because of rounding
        idle_usd = max(0.0, bill_usd - loading_usd - busy_usd)
        unbilled_usd = bill_usd - loading_usd - idle_usd - requests_usd - wasted_usd
    elif method is PricedBy.TOKENS:
        idle_usd, unbilled_usd = None, 0.0
    else:
        rest_usd = bill_usd - loading_usd
        idle_usd, unbilled_usd = (
            (rest_usd, 0.0) if method is None else (None, rest_usd - requests_usd - wasted_usd)
        )
    line = BillLine(
        replica=replica,
        hour_unix_s=hour,
        engines=len(there),
        requests=charge.requests,
        wall_s=wall_s,
        busy_s=busy_s,
        bill_usd=bill_usd,
        requests_usd=requests_usd,
        lost_usd=lost_usd,
        wasted_usd=wasted_usd,
        idle_usd=idle_usd,
        loading_usd=loading_usd,
        unbilled_usd=unbilled_usd,
        priced_by=method,
    )
    return RequestPrice(line, usd_per_s, usd_per_weight)
