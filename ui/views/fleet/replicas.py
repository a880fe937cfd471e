"""Combine each replica's measures, and find its problems. Replicas get no score. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from analysis.over_time.time_bins import Bins
from diagnosis.explain import MIN_GROWTH_RATIO
from diagnosis.explanation import RiskRatio
from diagnosis.inputs.requests import BoolArray, FloatArray, LabelColumn, Requests
from diagnosis.inputs.servers import EngineName
from diagnosis.latency.risk_ratios import risk_ratios
from telemetry.quantiles import quantile, rank_interval
from ui.kit import wording
from ui.views.fleet.grid import WAITED, Grid

SLOW_SHARE: Final = 0.05
"""The requests with the longest TTFT count as slow, up to this share of all requests."""
ENOUGH_SLOW: Final = 20
"""Minimum number of slow requests. With fewer, the replicas are not compared."""
KV_FULL: Final = 0.95
STALLING: Final = 0.05
CLEARLY: Final = 1.2
"""A replica is reported if its requests are slow this many times more often than other requests.
The lower end of the ratio's 95 % interval must reach this value. With many requests, even a tiny
difference is significant, but is not a problem."""
QUEUEING: Final = 0.5
"""A larger share of samples with waiting requests is a problem."""
RECENT_PARTS: Final = 6
"""The range is divided into this many parts. The newest part is also checked alone, for a recent
queue."""
HELD_BACK: Final = 0.02
SILENT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Problem:
    """A name of one or two words, the number that shows the problem, and a weight for sorting
    replicas."""

    what: str
    why: str
    weight: int


@dataclass(frozen=True, slots=True)
class ReplicaTraffic:
    """The number of a replica's requests with a TTFT, and the P99 of TTFT with its confidence
    interval."""

    requests: int
    p99_s: float | None
    low_s: float | None
    high_s: float | None


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The servers whose requests are slow more often than the requests of other servers.

    A server is a replica with one engine, or one engine of a replica with several engines.
    """

    hits: Sequence[RiskRatio]
    requests: int
    slow: int
    least_share: float
    most_share: float
    loaded: int
    """Number of servers with requests."""


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """Facts besides the measures. An unknown fact is None."""

    silent_s: float | None = None
    restarts: Sequence[int] = ()
    began_unix_ns: int | None = None
    held_back: float | None = None
    """Share of the GPU samples with a throttled clock."""
    reasons: Sequence[str] = ()
    differing_arguments: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A replica: one row of the page's table."""

    name: str
    over_time: Mapping[str, FloatArray]
    """The values of each measure over time. Shape (bins,)."""
    whole: Mapping[str, float | None]
    """The value of each measure over the whole range."""
    traffic: ReplicaTraffic | None
    facts: ReplicaFacts
    problems: Sequence[Problem]

    @property
    def weight(self) -> int:
        """Sum of the problems' weights."""
        return sum(problem.weight for problem in self.problems)


@dataclass(frozen=True, slots=True)
class FleetReplicas:
    """All replicas of the page. Replicas with the most serious problems are first."""

    replicas: Sequence[ReplicaRow]
    bins: Bins
    imbalance: Imbalance | None
    engines: Mapping[str, EngineName] = field(default_factory=dict)
    """Maps the name of a server to its engine, if the server is one of several engines of a
    replica. `Imbalance` defines servers."""

    @property
    def servers(self) -> int:
        """The number of servers (see `Imbalance`)."""
        divided = {name.replica for name in self.engines.values()}
        return len({each.name for each in self.replicas} - divided) + len(self.engines)

    @property
    def with_problems(self) -> Sequence[ReplicaRow]:
        """Replicas with at least one problem."""
        return [replica for replica in self.replicas if replica.problems]


def fleet(
    names: Sequence[str],
    bins: Bins,
    over_time: Mapping[str, Grid],
    whole: Mapping[str, Grid],
    traffic: Mapping[str, ReplicaTraffic],
    imbalance: Imbalance | None,
    facts: Mapping[str, ReplicaFacts],
    engines: Mapping[str, EngineName] = MappingProxyType({}),
) -> FleetReplicas:
    """The replicas with their measures and problems.

    Args:
        names: the replicas in the rows of `over_time` (replicas, bins) and `whole` (replicas, 1).
        imbalance: from `imbalance_of`.
        engines: as in `FleetReplicas`.
    """
    slow: dict[str, tuple[RiskRatio, str]] = {}
    for hit in imbalance.hits if imbalance else ():
        which = engines.get(hit.value)
        if which is None:
            slow[hit.value] = hit, ""
        else:
            slow.setdefault(which.replica, (hit, f"engine {which.engine} "))
    found = []
    for row, name in enumerate(names):
        mine = {measure: grid[row] for measure, grid in over_time.items()}
        all_of_it = {measure: _number_or_none(grid[row, 0]) for measure, grid in whole.items()}
        replica_facts = facts.get(name, ReplicaFacts())
        lately = _recent_mean(mine.get(WAITED))
        problems = tuple(_problems(all_of_it, replica_facts, slow.get(name), lately))
        found.append(ReplicaRow(name, mine, all_of_it, traffic.get(name), replica_facts, problems))
    found.sort(key=lambda each: (-each.weight, -_p99(each), each.name))
    return FleetReplicas(found, bins, imbalance, engines)


def _problems(
    whole: Mapping[str, float | None],
    replica_facts: ReplicaFacts,
    slow: tuple[RiskRatio, str] | None,
    waited_recently: float | None,
) -> Sequence[Problem]:
    found = []
    if replica_facts.silent_s is not None and replica_facts.silent_s > SILENT_S:
        found.append(Problem("silent", f"no sample for {wording.span(replica_facts.silent_s)}", 5))
    if slow is not None:
        hit, which = slow
        found.append(
            Problem(
                f"{which}slow {hit.risk_ratio:.1f}×",
                f"its requests are {hit.risk_ratio:.1f}× [{hit.low:.1f} to {hit.high:.1f}] as "
                f"likely as other requests to be among the slowest {wording.percent(SLOW_SHARE)} "
                "by TTFT",
                4,
            )
        )
    if replica_facts.held_back is not None and replica_facts.held_back > HELD_BACK:
        listed = ", ".join(reason.replace("_", " ") for reason in replica_facts.reasons)
        found.append(
            Problem(
                "clock throttled",
                f"{wording.percent(replica_facts.held_back)} of its GPUs’ samples: {listed}",
                3,
            )
        )
    kv = whole.get("kv")
    if kv is not None and kv >= KV_FULL:
        found.append(Problem("KV cache full", f"up to {wording.percent(kv)} in use", 2))
    evicted = whole.get("preemptions")
    if evicted:
        found.append(Problem("preempts", f"{wording.number(evicted)} requests per second", 2))
    stall = whole.get("stall")
    if stall is not None and stall >= STALLING:
        found.append(Problem("stalls", f"{wording.percent(stall)} of its busy time", 2))
    for waited, when in ((whole.get(WAITED), "samples"), (waited_recently, "latest samples")):
        if waited is not None and waited >= QUEUEING:
            most = wording.count(whole.get("queue"))
            why = f"waiting requests in {wording.percent(waited)} of the {when}, up to {most}"
            found.append(Problem("queue", why, 1))
            break
    if replica_facts.restarts:
        found.append(Problem("restarted", wording.counted(len(replica_facts.restarts), "time"), 1))
    if replica_facts.differing_arguments:
        found.append(Problem("other arguments", ", ".join(replica_facts.differing_arguments), 1))
    return found


def _recent_mean(values: FloatArray | None) -> float | None:
    if values is None:
        return None
    last = values[-max(1, len(values) // RECENT_PARTS) :]
    known = last[np.isfinite(last)]
    return float(known.mean()) if known.size else None


def traffic_of(labels: LabelColumn, ttft_s: FloatArray) -> dict[str, ReplicaTraffic]:
    """For each replica with requests, the number of requests with a TTFT, and their P99.

    Args:
        labels: the replica of each request. Shape (n,).
        ttft_s: seconds, or NaN if unknown or not streamed. Shape (n,).
    """
    found = {}
    order = np.argsort(labels.codes, kind="stable")
    codes = labels.codes[order]
    for code, name in enumerate(labels.values):
        low, high = np.searchsorted(codes, [code, code + 1])
        if low == high:
            continue
        values = ttft_s[order[low:high]]
        values = values[np.isfinite(values)]
        interval = rank_interval(values, 0.99)
        found[name] = ReplicaTraffic(
            int(values.size),
            quantile(values, 0.99),
            *(interval if interval is not None else (None, None)),
        )
    return found


def imbalance_of(labels: LabelColumn, ttft_s: FloatArray) -> Imbalance | None:
    """The servers whose requests are slow more often than the requests of other servers.

    The result is None if there are too few requests to compare the servers. Requests without a TTFT
    count only as load. If only one server has requests, there are no hits.

    Args:
        labels: the server of each request. Shape (n,).
        ttft_s: seconds, or NaN if unknown or not streamed. Shape (n,).
    """
    known = np.isfinite(ttft_s) & (labels.codes >= 0)
    codes, values = labels.codes[known], ttft_s[known]
    number = np.bincount(labels.codes[labels.codes >= 0])
    load = number[number > 0]
    if load.size == 1:
        return Imbalance((), int(values.size), 0, 1.0, 1.0, 1)
    if np.unique(codes).size < 2 or values.size * SLOW_SHARE < ENOUGH_SLOW:
        return None
    threshold = quantile(values, 1 - SLOW_SHARE)
    assert threshold is not None
    slow = values > threshold
    requests = Requests(
        np.zeros(values.size, dtype=np.int64), {}, {"replica": LabelColumn(codes, labels.values)}
    )
    hits, _ = risk_ratios(requests, slow)
    return Imbalance(
        [
            hit
            for hit in hits
            if hit.low >= CLEARLY and _slower(values, codes == labels.values.index(hit.value))
        ],
        int(values.size),
        int(slow.sum()),
        float(load.min() / load.sum()),
        float(load.max() / load.sum()),
        int(load.size),
    )


def _slower(ttft_s: FloatArray, its_own: BoolArray) -> bool:
    """Whether a server's P99 is significantly higher, and by more than `MIN_GROWTH_RATIO`.

    With many requests, even a tiny difference is significant. `its_own` marks the server's
    requests. `ttft_s` has the shape (n,).
    """
    own, others = (rank_interval(ttft_s[chosen], 0.99) for chosen in (its_own, ~its_own))
    if own is None or others is None:
        return False
    p99_s = [quantile(ttft_s[chosen], 0.99) or 0.0 for chosen in (its_own, ~its_own)]
    return own[0] > others[1] and p99_s[0] > MIN_GROWTH_RATIO * p99_s[1]


def _number_or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _p99(replica: ReplicaRow) -> float:
    traffic = replica.traffic
    return -1.0 if traffic is None or traffic.p99_s is None else traffic.p99_s
