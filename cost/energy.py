"""Compute the busy energy, the idle energy and the CO₂ emissions of each replica's GPUs. Pure.

Measurements over less than a minute are unreliable, because power sensors do not measure
continuously (arXiv 2312.02741). For each replica, this line is fitted to the values of all minutes,
or of all hours in a long range:

    E = a·T + b·busy                              a, b ≥ 0, least squares

E is the energy in joules, T is the length in seconds, and `busy` is the number of busy seconds. The
idle energy is a·(T − busy). The rest is divided among requests in proportion to their cost. The
energy of unbilled time is not assigned to requests.

No line is fitted if there are too few minutes, or if the busy shares are too similar. Idle GPUs are
then assumed to draw as much power as busy GPUs, so the idle energy is too high.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from cost.bill import Bill
from cost.prices import PriceList
from cost.uptime import Uptime
from telemetry.billing_data import GAP_S, BillingData, GpuEnergySpans
from telemetry.counter_series import CounterSeries, FloatArray, IntArray

MINUTE_S: Final = 60
MIN_BUCKETS: Final = 10
MIN_SPREAD: Final = 0.2
"""Minimum range of busy shares (busy/T). From shares that are too similar, the two coefficients
cannot be estimated."""
MAX_W: Final = 5_000.0
"""Maximum plausible power of a GPU in watts. If a counter rises faster, the counter was reset."""
J_PER_KWH: Final = 3.6e6

_NS: Final = 10**9


_DENSE: Final = 8
"""Maximum number of elements of the dense array in `_sums`, per value. For a larger array, sorting
is faster."""


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy of one or several replicas."""

    joules: float
    idle_j: float
    seen_s: float
    """GPU-seconds for which energy counters were read."""
    co2_g: float | None
    """CO₂ in grams, including the data centre's overhead, or None if unknown."""
    fitted: bool

    @property
    def kwh(self) -> float:
        """Energy in kilowatt-hours."""
        return self.joules / J_PER_KWH


def energy(billing_data: BillingData, prices: PriceList, uptime: Uptime) -> dict[str, Energy]:
    """The energy of each replica. Replicas whose counters cover less than a minute are omitted."""
    drawn = _by_bucket(billing_data.gpus, billing_data.from_unix_ns, billing_data.to_unix_ns)
    busy = _busy_shares(billing_data, uptime)
    found = {}
    for replica, (at, joules, seconds, gpus) in drawn.items():
        if (seconds / gpus).sum() < MINUTE_S:
            continue
        share = np.minimum(1.0, _values_at(busy.get(replica), at))
        whole = seconds > 0.5 * MINUTE_S * gpus
        idle_w, fitted = _idle_w(joules[whole], seconds[whole], share[whole])
        power_w = joules / seconds if idle_w is None else idle_w
        idle_j = float(np.minimum(joules, power_w * seconds * (1 - share)).sum())
        found[replica] = Energy(
            joules=float(joules.sum()),
            idle_j=idle_j,
            seen_s=float(seconds.sum()),
            co2_g=co2_g(float(joules.sum()), prices, _region(replica, billing_data, uptime)),
            fitted=fitted,
        )
    return found


def total_energy(several: Iterable[Energy]) -> Energy | None:
    """The sum over replicas, or None if there are no replicas."""
    known = list(several)
    if not known:
        return None
    emitted_g = [each.co2_g for each in known if each.co2_g is not None]
    return Energy(
        joules=sum(each.joules for each in known),
        idle_j=sum(each.idle_j for each in known),
        seen_s=sum(each.seen_s for each in known),
        co2_g=sum(emitted_g) if len(emitted_g) == len(known) else None,
        fitted=all(each.fitted for each in known),
    )


class GroupEnergy(NamedTuple):
    """Energy of a group of requests."""

    joules: float
    co2_g: float | None


def energy_by_group(bill: Bill, energies: Mapping[str, Energy]) -> list[GroupEnergy | None]:
    """The busy energy of each group. It is None if no replica has both energy counters and a price.

    Args:
        energies: energy of each replica, for the same window.
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
            drawn = _sum_of_both(drawn, GroupEnergy(energy.joules * share, grams))
        found.append(drawn)
    return found


def _sum_of_both(one: GroupEnergy | None, other: GroupEnergy) -> GroupEnergy:
    if one is None:
        return other
    known = one.co2_g is not None and other.co2_g is not None
    grams = (one.co2_g or 0.0) + (other.co2_g or 0.0)
    return GroupEnergy(one.joules + other.joules, grams if known else None)


def co2_g(joules: float, prices: PriceList, region: str | None) -> float | None:
    """The CO₂ emissions in grams, including the data centre's overhead, or None if unknown."""
    carbon = prices.carbon_of(region)
    if carbon is None or prices.pue is None:
        return None
    return joules / J_PER_KWH * prices.pue.ratio * carbon.g_per_kwh


def _region(replica: str, billing_data: BillingData, uptime: Uptime) -> str | None:
    regions = [
        each.region for each in billing_data.starts if each.replica == replica and each.region
    ]
    return regions[-1] if regions else uptime.regions.get(replica)


class _Drawn(NamedTuple):
    at_unix_s: IntArray
    joules: FloatArray
    seconds: FloatArray
    gpus: FloatArray
    """Number of GPUs whose counters were read in each bucket."""


def _by_bucket(gpus: GpuEnergySpans, from_unix_ns: int, to_unix_ns: int) -> dict[str, _Drawn]:
    """The joules and seconds of each replica's GPUs in each bucket (a minute or an hour), and the
    number of these GPUs. The start of an interval determines its bucket."""
    intervals = CounterSeries.of(
        gpus.which, gpus.first_unix_ns, gpus.last_unix_ns, GAP_S
    ).intervals()
    start, end = intervals.start_unix_ns, intervals.end_unix_ns
    joules = intervals.differences(gpus.first_j, gpus.last_j)
    inside = np.minimum(end, to_unix_ns) - np.maximum(start, from_unix_ns)
    seconds = (end - start) / _NS
    good = (inside > 0) & (joules >= 0) & (joules <= MAX_W * seconds)
    share = inside[good] / (end - start)[good]
    place = intervals.begun_by()[good]
    replicas = list(dict.fromkeys(replica for replica, _ in gpus.gpus))
    number = {replica: i for i, replica in enumerate(replicas)}
    replica_of = np.array([number[replica] for replica, _ in gpus.gpus], np.int64)
    gpu, at, sums = _sums(
        gpus.which[place],
        gpus.bucket_unix_s[place],
        (joules[good] * share, seconds[good] * share),
    )
    of, at, sums = _sums(replica_of[gpu], at, (*sums, np.ones(gpu.size)))
    return {
        replicas[each]: _Drawn(at[rows], *(values[rows] for values in sums))
        for each, rows in _runs(of)
    }


def _busy_shares(
    billing_data: BillingData, uptime: Uptime
) -> Mapping[str, tuple[IntArray, FloatArray]]:
    """For each replica, the starts of its buckets in unix seconds, and the mean busy share of its
    engines."""
    totals = billing_data.engines
    grown = totals.last["busy_s_total"] - totals.first["busy_s_total"]
    seconds = (totals.last_unix_ns - totals.first_unix_ns) / _NS
    engines = Counter(replica for replica, _ in {each for each, _ in uptime.hours})
    replicas = list(engines)
    of_replica = {replica: i for i, replica in enumerate(replicas)}
    names = [(each.replica, each.engine) for each in totals.counts]
    keys = list(dict.fromkeys(names))
    of_key = {key: i for i, key in enumerate(keys)}
    key_of = np.array([of_key[name] for name in names], np.int64)
    billed = np.array([name[0] in engines for name in names], bool)
    good = (seconds > 0) & ~np.isnan(grown)
    good &= billed[totals.which] if billed.size else False
    of, at, (busy_s, seen_s) = _sums(
        key_of[totals.which[good]], totals.bucket_unix_s[good], (grown[good], seconds[good])
    )
    replica_of = np.array([of_replica.get(replica, -1) for replica, _ in keys], np.int64)
    several, at, (share,) = _sums(replica_of[of], at, (busy_s / seen_s,))
    return {
        replicas[each]: (at[rows], share[rows] / engines[replicas[each]])
        for each, rows in _runs(several)
    }


def _sums(
    of: IntArray, at: IntArray, values: Sequence[FloatArray]
) -> tuple[IntArray, IntArray, list[FloatArray]]:
    """Sum the elements of each array over equal pairs of `of` and `at`. Return the distinct pairs,
    sorted, and the sums for each pair."""
    if not at.size:
        return of, at, list(values)
    first = int(at.min())
    steps = (at - first) // MINUTE_S
    width = int(steps.max()) + 1
    pairs, number = of * width + steps, (int(of.max()) + 1) * width
    if number > _DENSE * at.size:
        there, pairs = np.unique(pairs, return_inverse=True)
        number = there.size
    else:
        there = np.arange(number)
    found = np.flatnonzero(np.bincount(pairs, minlength=number))
    summed = [
        np.bincount(pairs, each, minlength=number)[found].astype(np.float64) for each in values
    ]
    of, steps = np.divmod(there[found], width)
    return of, np.asarray(first + steps * MINUTE_S, np.int64), summed


def _runs(of: IntArray) -> Iterator[tuple[int, slice]]:
    found, first = np.unique(of, return_index=True)
    ends = np.append(first, of.size)[1:]
    for each, start, end in zip(found.tolist(), first.tolist(), ends.tolist(), strict=True):
        yield each, slice(start, end)


def _values_at(known: tuple[IntArray, FloatArray] | None, at: IntArray) -> FloatArray:
    """Each value at a time in `at`, or 0 if unknown. All times are sorted."""
    if known is None:
        return np.zeros(at.size)
    times, values = known
    place = np.minimum(np.searchsorted(times, at), times.size - 1)
    return np.where(times[place] == at, values[place], 0.0)


def _idle_w(joules: FloatArray, seconds: FloatArray, busy: FloatArray) -> tuple[float | None, bool]:
    """The idle power of one GPU in watts, or None if unknown, and whether it was fitted."""
    if joules.size < MIN_BUCKETS:
        return None, False
    if busy.max() - busy.min() < MIN_SPREAD:
        return None, False
    # One hour has the weight of sixty minutes.
    weight = np.sqrt(seconds)
    columns = np.stack([weight, weight * busy], axis=1)
    (idle_w, more_w), *_ = np.linalg.lstsq(columns, weight * joules / seconds, rcond=None)
    if idle_w < 0 or more_w < 0:
        return None, False
    return float(idle_w), True
