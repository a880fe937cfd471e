"""Compute the energy of each replica's GPUs, divide it into busy and idle energy, and compute CO₂.

Pure. Energy is read from counters at the ends of minutes. The energy of shorter intervals is not
reliable, because power sensors do not measure continuously (an H100's sensor measures only a
quarter of the time: arXiv 2312.02741). The model for the minutes of a replica (hours in a long
range) is

    E = a·T + b·busy                              a, b ≥ 0, least squares

a is the power of idle GPUs, so idle energy is a·(T − busy). If there are too few minutes, or their
busy shares are too similar, idle time gets the same power as busy time, so idle energy is too high.
The rest of the energy belongs to the requests and is divided in proportion to their cost. The
energy of unbilled busy time is not assigned to any request.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from cost.bill import Bill
from cost.prices import PriceList
from cost.uptime import Uptime
from telemetry.accounts import GAP_S, Accounts, GpuStretches
from telemetry.counter_series import CounterSeries

MINUTE_S: Final = 60
LEAST_BUCKETS: Final = 10
LEAST_SPREAD: Final = 0.2
"""Minimum difference between the largest and the smallest busy share. Below it, a and b cannot be
distinguished."""
MOST_W: Final = 5_000.0
"""Maximum plausible power of a GPU in watts. A counter that rose faster was reset."""
J_PER_KWH: Final = 3.6e6

_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy of one or several replicas."""

    joules: float
    idle_j: float
    seen_s: float
    """GPU-seconds covered by counters."""
    co2_g: float | None
    """CO₂ in grams, including the data centre's overhead; None without emissions for the region."""
    fitted: bool
    """Whether the idle power was fitted, not estimated from the share of idle time."""

    @property
    def kwh(self) -> float:
        """Energy in kilowatt-hours."""
        return self.joules / J_PER_KWH


def energy(accounts: Accounts, prices: PriceList, uptime: Uptime) -> dict[str, Energy]:
    """Return the energy by replica, without replicas that have no energy counters.

    Empty if the range is shorter than a minute."""
    drawn = _by_bucket(accounts.gpus, accounts.from_unix_ns, accounts.to_unix_ns)
    busy = _busy(accounts, uptime)
    found = {}
    for replica, buckets in drawn.items():
        joules = sum(j for j, _ in buckets.values())
        seen_s = sum(s for _, s in buckets.values())
        gpus = sum(1 for name, _ in accounts.gpus.gpus if name == replica)
        if seen_s < MINUTE_S * gpus or gpus == 0:
            continue
        share = {at: min(1.0, busy[replica].get(at, 0.0)) for at in buckets}
        idle_w, fitted = _idle_w(
            [(j, s, share[at]) for at, (j, s) in buckets.items() if s > 0.5 * MINUTE_S * gpus]
        )
        idle_j = sum(
            min(j, (idle_w if idle_w is not None else j / s) * s * (1 - share[at]))
            for at, (j, s) in buckets.items()
            if s > 0
        )
        found[replica] = Energy(
            joules=joules,
            idle_j=idle_j,
            seen_s=seen_s,
            co2_g=co2_g(joules, prices, _region(replica, accounts, uptime)),
            fitted=fitted,
        )
    return found


def total_energy(several: Iterable[Energy]) -> Energy | None:
    """Return the sum over replicas, or None without replicas."""
    known = list(several)
    if not known:
        return None
    told = [each.co2_g for each in known if each.co2_g is not None]
    return Energy(
        joules=sum(each.joules for each in known),
        idle_j=sum(each.idle_j for each in known),
        seen_s=sum(each.seen_s for each in known),
        co2_g=sum(told) if len(told) == len(known) else None,
        fitted=all(each.fitted for each in known),
    )


class GroupEnergy(NamedTuple):
    """Energy of a group of requests."""

    joules: float
    co2_g: float | None


def energy_by_group(bill: Bill, energies: Mapping[str, Energy]) -> list[GroupEnergy | None]:
    """Return the busy energy of each group.

    A replica's busy energy is divided among the groups in proportion to their cost. A group's
    energy is None if none of its replicas has both energy counters and a price. The sum over all
    groups may be less than the busy energy, because the energy of unbilled time is not assigned.

    Args:
        bill: the bill with its groups.
        energies: energy by replica, for the same window.
    """
    busy_usd: dict[str, float] = defaultdict(float)
    for line in bill.lines:
        busy_usd[line.replica] += line.bill_usd - (line.idle_usd or 0.0) - line.loading_usd
    paid_usd: dict[str, float] = defaultdict(float)
    for group in bill.groups:
        for replica, usd in group.usd_of.items():
            paid_usd[replica] += usd
    found: list[GroupEnergy | None] = []
    for group in bill.groups:
        drawn = None
        for replica, usd in group.usd_of.items():
            energy = energies.get(replica)
            whole_usd = max(busy_usd[replica], paid_usd[replica])
            if energy is None or energy.joules <= 0 or whole_usd <= 0:
                continue
            share = usd / whole_usd * (1 - energy.idle_j / energy.joules)
            grams = None if energy.co2_g is None else energy.co2_g * share
            drawn = _both(drawn, GroupEnergy(energy.joules * share, grams))
        found.append(drawn)
    return found


def _both(one: GroupEnergy | None, other: GroupEnergy) -> GroupEnergy:
    if one is None:
        return other
    known = one.co2_g is not None and other.co2_g is not None
    grams = (one.co2_g or 0.0) + (other.co2_g or 0.0)
    return GroupEnergy(one.joules + other.joules, grams if known else None)


def co2_g(joules: float, prices: PriceList, region: str | None) -> float | None:
    """Return the CO₂ emissions in grams, including the data centre's overhead."""
    carbon = prices.carbon_of(region)
    if carbon is None or prices.pue is None:
        return None
    return joules / J_PER_KWH * prices.pue.ratio * carbon.g_per_kwh


def _region(replica: str, accounts: Accounts, uptime: Uptime) -> str | None:
    told = [each.region for each in accounts.starts if each.replica == replica and each.region]
    return told[-1] if told else uptime.regions.get(replica)


def _by_bucket(
    gpus: GpuStretches, from_unix_ns: int, to_unix_ns: int
) -> dict[str, dict[int, tuple[float, float]]]:
    """Return the joules and seconds of each replica's GPUs, by minute or hour.

    A span belongs to the bucket in which it begins."""
    found: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
    intervals = CounterSeries.of(
        gpus.which, gpus.first_unix_ns, gpus.last_unix_ns, GAP_S
    ).intervals()
    for place, start, end, joules in zip(
        intervals.begun_by().tolist(),
        intervals.start_unix_ns.tolist(),
        intervals.end_unix_ns.tolist(),
        intervals.differences(gpus.first_j, gpus.last_j).tolist(),
        strict=True,
    ):
        inside = max(0, min(end, to_unix_ns) - max(start, from_unix_ns))
        seconds = (end - start) / _NS
        if not inside or not 0 <= joules <= MOST_W * seconds:
            continue
        buckets = found[gpus.gpus[gpus.which[place]][0]]
        bucket = int(gpus.bucket_unix_s[place])
        known_j, known_s = buckets.get(bucket, (0.0, 0.0))
        share = inside / (end - start)
        buckets[bucket] = (known_j + joules * share, known_s + seconds * share)
    return found


def _busy(accounts: Accounts, uptime: Uptime) -> Mapping[str, dict[int, float]]:
    """Return the busy share of the covered time by replica and bucket: the mean over its
    engines.
    """
    told = accounts.engines
    grown = told.last["busy_s_total"] - told.first["busy_s_total"]
    engines = defaultdict(set)
    for (replica, number), _ in uptime.hours:
        engines[replica].add(number)
    sums: dict[tuple[str, int, int], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for place, which in enumerate(told.which.tolist()):
        count = told.counts[which]
        seconds = (int(told.last_unix_ns[place]) - int(told.first_unix_ns[place])) / _NS
        if seconds <= 0 or np.isnan(grown[place]):
            continue
        key = count.replica, count.engine, int(told.bucket_unix_s[place])
        busy_s, seen_s = sums[key]
        sums[key] = busy_s + float(grown[place]), seen_s + seconds
    found: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for (replica, _, at), (busy_s, seen_s) in sums.items():
        if engines[replica]:
            found[replica][at] += busy_s / seen_s / len(engines[replica])
    return found


def _idle_w(buckets: list[tuple[float, float, float]]) -> tuple[float | None, bool]:
    """Return the idle power of one GPU in watts (None if unknown), and whether it was fitted.

    Args:
        buckets: joules, seconds and busy share of each minute or hour.
    """
    if len(buckets) < LEAST_BUCKETS:
        return None, False
    joules, seconds, busy = (np.array(column) for column in zip(*buckets, strict=True))
    if busy.max() - busy.min() < LEAST_SPREAD:
        return None, False
    # An hour has the same weight in the fit as sixty minutes.
    weight = np.sqrt(seconds)
    columns = np.stack([weight, weight * busy], axis=1)
    (idle_w, more_w), *_ = np.linalg.lstsq(columns, weight * joules / seconds, rcond=None)
    if idle_w < 0 or more_w < 0:
        return None, False
    return float(idle_w), True
