"""The bill: every second of every engine that was seen, in dollars, to a request or by name.

    bill = R·wall = requests + wasted + idle + unbilled

`requests` is their share of the engine's steps (the ledger's), `wasted` what an eviction made
the engine compute again, `idle` the time between steps, and `unbilled` the rest of the busy
time: of requests that had not ended, or whose account was lost; below zero where requests were
billed time in which their engine was not seen. Where no ledger told, an engine's time is split
by weighted tokens, and says so (`priced_by`).

Of hours of which no engine's time is known any more (an older database kept rollups of requests
alone) only requests and waste are known, and are all that is in the bill.

Pure. Prices are those in force now, whatever they were when a request came in.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cost.prices import PriceList, Rate
from cost.seen import Seen, seen
from cost.tariff import Tariff
from cost.weights import BY_PRICE, Weights, by_replica
from telemetry.accounts import Accounts, Cells
from telemetry.requests import Outcome, PricedBy

LOST = (Outcome.ABORT.value, Outcome.ERROR.value)
"""Outcomes whose answers nobody got."""


@dataclass(slots=True)
class Line:
    """One replica in one hour. Dollars, but for the seconds that they are the price of.

    `bill_usd` = `requests_usd` + `wasted_usd` + `idle_usd` + `unbilled_usd`, an unknown
    `idle_usd` being in `requests_usd`.
    """

    replica: str
    hour_unix_s: int
    engines: int
    requests: int
    wall_s: float
    busy_s: float | None
    bill_usd: float
    requests_usd: float
    lost_usd: float
    """Of `requests_usd`, what went to answers that nobody got."""
    wasted_usd: float
    idle_usd: float | None
    unbilled_usd: float
    priced_by: PricedBy | None


@dataclass(slots=True)
class Group:
    """Requests that share the labels asked by. Costs are None where none has a price."""

    labels: tuple[str | None, ...]
    requests: int = 0
    unpriced: int = 0
    """Of them, those of servers without a price."""
    usd: float | None = None
    """With what was wasted."""
    lost_usd: float = 0.0
    wasted_usd: float = 0.0
    engine_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    in_usd: float = 0.0
    out_usd: float = 0.0
    priced_by: set[PricedBy] = field(default_factory=set)

    @property
    def usd_per_1k_in(self) -> float | None:
        """For a thousand tokens in, cached ones among them."""
        return self._per_1k(self.in_usd, self.prompt_tokens)

    @property
    def usd_per_1k_out(self) -> float | None:
        """For a thousand tokens out."""
        return self._per_1k(self.out_usd, self.output_tokens)

    def _per_1k(self, usd: float, tokens: int) -> float | None:
        if self.usd is None or not tokens or not self.in_usd + self.out_usd:
            return None
        return usd / tokens * 1_000


class Unpriced(NamedTuple):
    """A server that has no price, and why: the device that no entry matches, None if unknown."""

    replica: str
    device: str | None
    wall_s: float
    requests: int


@dataclass(frozen=True, slots=True)
class Bill:
    """What a stretch of time cost."""

    from_unix_ns: int
    to_unix_ns: int
    by: tuple[str, ...]
    lines: Sequence[Line]
    groups: Sequence[Group]
    """The dearest first."""
    rates: Mapping[str, Sequence[Rate]]
    """Of each replica the latest rate of each of its engines."""
    unpriced: Sequence[Unpriced]
    weights: Mapping[str, Weights]
    """Of each replica: how its requests' cost is split into tokens in and out."""
    seen: Seen

    @property
    def total(self) -> Line | None:
        """All lines added up; None where nothing has a price."""
        return added(self.lines) if self.lines else None

    @property
    def usd_per_hour(self) -> float:
        """What the engines that were seen last cost an hour, busy or not."""
        return sum(rate.usd_per_hour for rates in self.rates.values() for rate in rates)


def added(lines: Iterable[Line]) -> Line:
    """Several lines as one; replica "" and the first hour. At least one line."""
    several = list(lines)
    known_idle = [each.idle_usd for each in several if each.idle_usd is not None]
    known_busy = [each.busy_s for each in several if each.busy_s is not None]
    methods = {each.priced_by for each in several if each.priced_by is not None}
    return Line(
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
        unbilled_usd=sum(each.unbilled_usd for each in several),
        priced_by=methods.pop() if len(methods) == 1 else None,
    )


def bill(accounts: Accounts, prices: PriceList, by: Sequence[str] = ()) -> Bill:
    """Make out the bill.

    Args:
        accounts: of the window, with the labels of `by` among those of its cells.
        prices: those in force.
        by: the labels of its groups, `hour` among them or not; none for one group of all.
    """
    times = seen(accounts.engines, accounts.from_unix_ns, accounts.to_unix_ns)
    tariff = Tariff(accounts, prices, times)
    charges = _by_replica_hour(accounts.cells)
    weights = by_replica(times, accounts.cells)
    lines, paying = [], {}
    for key in sorted({*_spotted(times), *charges}, key=lambda each: (each[1], each[0] or "")):
        gone = key[1] * 10**9 < accounts.engines_from_unix_ns
        found = _line(key, times, charges.get(key, []), accounts.cells, tariff, weights, gone=gone)
        if found is not None:
            paying[key] = found
            if found.line is not None:
                lines.append(found.line)
    return Bill(
        from_unix_ns=accounts.from_unix_ns,
        to_unix_ns=accounts.to_unix_ns,
        by=tuple(by),
        lines=lines,
        groups=_groups(accounts.cells, tuple(by), paying, weights),
        rates=tariff.latest(),
        unpriced=_unpriced(times, accounts.cells, tariff, paying),
        weights=weights,
        seen=times,
    )


Key = tuple[str | None, int]
"""Replica and hour."""


class _Paying(NamedTuple):
    """How the requests of a replica and hour are priced."""

    line: Line | None
    usd_per_s: float
    """Of the ledger's seconds."""
    usd_per_weight: float | None
    """Of weighted tokens; None where the ledger told."""


def _spotted(times: Seen) -> Iterator[Key]:
    for (replica, _), hour in times.hours:
        yield replica, hour


def _by_replica_hour(cells: Cells) -> dict[Key, list[int]]:
    place = list(cells.by).index("replica")
    found: dict[Key, list[int]] = defaultdict(list)
    for index, (group, hour) in enumerate(
        zip(cells.group.tolist(), cells.hour_unix_s.tolist(), strict=True)
    ):
        found[cells.labels[group][place], hour].append(index)
    return found


def _line(
    key: Key,
    times: Seen,
    places: Sequence[int],
    cells: Cells,
    tariff: Tariff,
    weights: Mapping[str, Weights],
    *,
    gone: bool,
) -> _Paying | None:
    """A replica's line of an hour; None where it has no price.

    `gone` says that of its engines' time nothing is known, or not all.
    """
    replica, hour = key
    rated = [
        (rate, None if gone else times.hours.get((engine, hour)))
        for engine in tariff.engines(replica)
        if (rate := tariff.rate(engine, hour)) is not None
    ]
    if not rated or replica is None:
        return None
    there = [(rate.usd_per_s, each) for rate, each in rated if each is not None]
    wall_s = sum(each.wall_s for _, each in there)
    bill_usd = sum(usd * each.wall_s for usd, each in there)
    busy = [(usd, each.busy_s) for usd, each in there]
    told = [(usd, busy_s) for usd, busy_s in busy if busy_s is not None]
    busy_s = sum(s for _, s in told) if told and len(told) == len(busy) else None
    busy_usd = sum(usd * s for usd, s in told) if busy_s is not None else None
    usd_per_s = (
        busy_usd / busy_s
        if busy_s and busy_usd is not None
        else bill_usd / wall_s
        if wall_s
        else sum(rate.usd_per_s for rate, _ in rated) / len(rated)
    )
    by_outcome = _seconds(places, cells)
    method: PricedBy | None = PricedBy.LEDGER if by_outcome is not None else None
    usd_per_weight = None
    if by_outcome is not None:
        requests_usd = sum(billed for billed, _, _ in by_outcome) * usd_per_s
        wasted_usd = sum(wasted for _, wasted, _ in by_outcome) * usd_per_s
        lost_usd = sum(billed for billed, _, lost in by_outcome if lost) * usd_per_s
    else:
        requests_usd = wasted_usd = lost_usd = 0.0
        weighed = _weighed(places, cells, weights.get(replica, BY_PRICE))
        whole = sum(weight for weight, _ in weighed)
        if whole > 0:
            method = PricedBy.TOKENS
            requests_usd = bill_usd if busy_usd is None else busy_usd
            usd_per_weight = requests_usd / whole
            lost_usd = usd_per_weight * sum(weight for weight, lost in weighed if lost)
    idle_usd: float | None
    if gone:
        if method is not PricedBy.LEDGER:
            return None  # there is nothing to share out
        bill_usd, idle_usd, unbilled_usd = requests_usd + wasted_usd, None, 0.0
    elif busy_usd is not None:
        idle_usd, unbilled_usd = bill_usd - busy_usd, busy_usd - requests_usd - wasted_usd
    elif method is PricedBy.TOKENS:
        idle_usd, unbilled_usd = None, 0.0
    else:
        idle_usd, unbilled_usd = (
            (bill_usd, 0.0) if method is None else (None, bill_usd - requests_usd - wasted_usd)
        )
    line = Line(
        replica=replica,
        hour_unix_s=hour,
        engines=len(there),
        requests=int(sum(cells.requests[place] for place in places)),
        wall_s=wall_s,
        busy_s=busy_s,
        bill_usd=bill_usd,
        requests_usd=requests_usd,
        lost_usd=lost_usd,
        wasted_usd=wasted_usd,
        idle_usd=idle_usd,
        unbilled_usd=unbilled_usd,
        priced_by=method,
    )
    return _Paying(line, usd_per_s, usd_per_weight)


def _seconds(places: Sequence[int], cells: Cells) -> list[tuple[float, float, bool]] | None:
    """Billed, wasted, lost of each cell; None where no ledger told of any."""
    told = cells.told["billed_s"]
    billed, wasted = cells.sums["billed_s"], cells.sums["wasted_s"]
    if not any(told[place] or billed[place] for place in places):
        return None
    return [(float(billed[place]), float(wasted[place]), _lost(place, cells)) for place in places]


def _weighed(places: Sequence[int], cells: Cells, weights: Weights) -> list[tuple[float, bool]]:
    return [(sum(_tokens(place, cells, weights)), _lost(place, cells)) for place in places]


def _tokens(place: int, cells: Cells, weights: Weights) -> tuple[float, float]:
    prompt, cached, output = (
        float(cells.sums[name][place])
        for name in ("prompt_tokens", "cached_tokens", "output_tokens")
    )
    return weights.of(prompt, cached, output)


def _lost(place: int, cells: Cells) -> bool:
    return cells.labels[int(cells.group[place])][list(cells.by).index("outcome")] in LOST


def _groups(
    cells: Cells, by: tuple[str, ...], paying: Mapping[Key, _Paying], weights: Mapping[str, Weights]
) -> list[Group]:
    columns = list(cells.by)
    replica_at = columns.index("replica")
    groups: dict[tuple[str | None, ...], Group] = {}
    for place, (group, hour) in enumerate(
        zip(cells.group.tolist(), cells.hour_unix_s.tolist(), strict=True)
    ):
        labels = cells.labels[group]
        name = tuple(str(hour) if each == "hour" else labels[columns.index(each)] for each in by)
        mine = groups.setdefault(name, Group(name))
        _add(
            mine, place, cells, labels[replica_at], paying.get((labels[replica_at], hour)), weights
        )
    kept = [each for each in groups.values() if each.requests or each.usd]
    for each in kept:
        # Seconds that moved over an hour's end left their tokens on its other side.
        split_usd = each.in_usd + each.out_usd
        if each.usd is not None and split_usd:
            scale = (each.usd - each.wasted_usd) / split_usd
            each.in_usd, each.out_usd = each.in_usd * scale, each.out_usd * scale
    if "hour" in by:
        return sorted(kept, key=lambda each: [str(label) for label in each.labels])
    return sorted(kept, key=lambda each: (-(each.usd or 0.0), [str(x) for x in each.labels]))


def _add(
    mine: Group,
    place: int,
    cells: Cells,
    replica: str | None,
    how: _Paying | None,
    weights: Mapping[str, Weights],
) -> None:
    requests = int(cells.requests[place])
    mine.requests += requests
    mine.prompt_tokens += int(cells.sums["prompt_tokens"][place])
    mine.cached_tokens += int(cells.sums["cached_tokens"][place])
    mine.output_tokens += int(cells.sums["output_tokens"][place])
    if how is None:
        mine.unpriced += requests
        return
    weigh = weights.get(replica or "", BY_PRICE)
    went_in, came_out = _tokens(place, cells, weigh)
    if how.usd_per_weight is not None:
        usd, wasted = (went_in + came_out) * how.usd_per_weight, 0.0
        mine.priced_by.add(PricedBy.TOKENS)
    else:
        billed_s, wasted_s = cells.sums["billed_s"][place], cells.sums["wasted_s"][place]
        mine.engine_s += float(billed_s + wasted_s)
        usd, wasted = float(billed_s) * how.usd_per_s, float(wasted_s) * how.usd_per_s
        if cells.told["billed_s"][place]:
            mine.priced_by.add(PricedBy.LEDGER)
    mine.usd = (mine.usd or 0.0) + usd + wasted
    mine.wasted_usd += wasted
    mine.lost_usd += usd if _lost(place, cells) else 0.0
    if went_in + came_out > 0:
        mine.in_usd += usd * went_in / (went_in + came_out)
        mine.out_usd += usd * came_out / (went_in + came_out)


def _unpriced(
    times: Seen, cells: Cells, tariff: Tariff, paying: Mapping[Key, _Paying]
) -> list[Unpriced]:
    wall: dict[str, float] = defaultdict(float)
    device: dict[str, str | None] = {}
    requests: dict[str, int] = defaultdict(int)
    for (engine, hour), each in times.hours.items():
        if tariff.rate(engine, hour) is None:
            wall[engine[0]] += each.wall_s
            device[engine[0]] = tariff.device(engine, hour)[0]
    place = list(cells.by).index("replica")
    for index, (group, hour) in enumerate(
        zip(cells.group.tolist(), cells.hour_unix_s.tolist(), strict=True)
    ):
        replica = cells.labels[group][place]
        if (replica, hour) not in paying:
            requests[replica or ""] += int(cells.requests[index])
    names = sorted({*wall, *(name for name, number in requests.items() if number)})
    return [Unpriced(name, device.get(name), wall[name], requests[name]) for name in names]
