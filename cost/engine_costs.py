"""The cost of each engine in a time range. Pure.

With data parallelism, a replica has several engines. A bill by replica does not show that one
engine is idle while another engine is overloaded.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cost.engine_rates import EngineRates
from cost.uptime import Engine, Uptime


@dataclass(slots=True)
class EngineCost:
    """The time and the cost of one engine. The cost of all engines is the bill of their hours."""

    replica: str
    engine: int
    wall_s: float = 0.0
    busy_s: float | None = 0.0
    """Seconds in steps. The value is None if they are not reported in one of the hours."""
    bill_usd: float = 0.0
    loading_usd: float = 0.0
    idle_usd: float | None = 0.0
    """Cost of the time between steps. The value is None if `busy_s` is None."""


def engine_costs(
    uptime: Uptime, engine_rates: EngineRates, engines_from_unix_ns: int
) -> Sequence[EngineCost]:
    """Return the cost of each engine with a price, in order of replica and engine.

    Args:
        engines_from_unix_ns: hours that begin before this time are omitted, because data on engines
            was deleted.
    """
    found: dict[Engine, EngineCost] = {}
    for (engine, hour_unix_s), hour in uptime.hours.items():
        rate = engine_rates.rate(engine, hour_unix_s)
        if rate is None or hour_unix_s * 10**9 < engines_from_unix_ns:
            continue
        cost = found.setdefault(engine, EngineCost(*engine))
        loading_usd = rate.usd_per_s * hour.loading_s
        cost.wall_s += hour.wall_s
        cost.bill_usd += rate.usd_per_s * hour.wall_s
        cost.loading_usd += loading_usd
        if hour.busy_s is None or cost.busy_s is None or cost.idle_usd is None:
            cost.busy_s = cost.idle_usd = None
            continue
        cost.busy_s += hour.busy_s
        # Rounding can make the difference negative.
        cost.idle_usd += max(0.0, rate.usd_per_s * (hour.wall_s - hour.busy_s) - loading_usd)
    return [found[engine] for engine in sorted(found)]


def of_replicas_with_several_engines(costs: Sequence[EngineCost]) -> list[EngineCost]:
    """Return the engines that share a replica, those with the highest cost of idle time first."""
    numbers = Counter(each.replica for each in costs)
    several = [each for each in costs if numbers[each.replica] > 1]
    return sorted(several, key=lambda each: -(each.idle_usd or 0.0))
