"""The result of a diagnosis. Pure. Seconds are means over the slow requests. A share is a share of
the added time: the sum of the terms that grew."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from diagnosis.claim import Evidence, Lever
from diagnosis.latency.attainment import Attainment
from diagnosis.question import Question

UNCHANGED: Final = 0.1
"""If the tail's mean changes by a smaller share than this, it counts as unchanged."""


class ShareMethod(StrEnum):
    """How the shares of the causes were computed."""

    ACCOUNTING = "accounting"
    """The shares come from the latency parts of the slow requests. The plugin's step ledger
    measures these parts."""
    COUNTERFACTUAL = "counterfactual"
    """The shares come from replays of the window with and without each cause."""


class ExplanationVerdict(StrEnum):
    """The verdict: whether a latency grew."""

    INCIDENT = "incident"
    NO_INCIDENT = "no_incident"
    INSUFFICIENT_DATA = "insufficient_data"


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause and its share of the added time, in [0, 1]. `low` and `high` bound the share's 95 %
    interval. They are None if no replay computed the share."""

    id: str
    share: float
    evidence: Sequence[Evidence]
    levers: Sequence[Lever]
    where: Mapping[str, str]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """The slow requests' mean latencies in seconds, as measured and as replayed."""

    requests: int
    baseline_s: float
    replayed_baseline_s: float
    now_s: float
    replayed_now_s: float


@dataclass(frozen=True, slots=True)
class PartGrowth:
    """A part of the latency, and its mean seconds over the slow requests of baseline and window."""

    part: str
    baseline_s: float
    now_s: float

    @property
    def excess_s(self) -> float:
        """The increase of the part in seconds. It is negative if the part became shorter."""
        return self.now_s - self.baseline_s


@dataclass(frozen=True, slots=True)
class RiskRatio:
    """A group of requests that are slow more often than the other requests."""

    dimension: str
    value: str
    risk_ratio: float
    low: float
    high: float
    requests: int


@dataclass(frozen=True, slots=True)
class NetworkGrowth:
    """A growth of the time that probe requests from one region spend outside the servers. The
    fields contain the medians in seconds, and their 95 % intervals (low, high)."""

    region: str
    baseline_probes: int
    probes: int
    baseline_s: float
    baseline_interval_s: tuple[float, float]
    now_s: float
    now_interval_s: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of a diagnosis.

    `tail_share` is the share of requests that counts as slow. `excess_s` is the growth of the slow
    requests' mean latency in seconds. `unexplained` is the share of the added time that no cause
    explains. `needed` is the minimum number of requests in each range for a verdict.
    """

    question: Question
    verdict: ExplanationVerdict
    requests: int
    baseline_requests: int
    needed: int
    tail_share: float | None = None
    baseline_s: float | None = None
    now_s: float | None = None
    onset_unix_ns: int | None = None
    causes: Sequence[Cause] = ()
    others: Sequence[Cause] = ()
    """Causes whose share is too small to be named, largest first. A replay tests them if the named
    causes do not explain the growth."""
    unexplained: float | None = None
    parts: Sequence[PartGrowth] = ()
    dimensions: Sequence[RiskRatio] = ()
    dimensions_tested: int = 0
    attainments: Sequence[Attainment] = ()
    method: ShareMethod = ShareMethod.ACCOUNTING
    unexplained_low: float | None = None
    unexplained_high: float | None = None
    replay: Replay | None = None
    """The replay that computed the shares, or None if no replay computed them."""
    not_replayed: str | None = None
    """Why no replay computed the shares. None if no replay was requested."""
    network: Sequence[NetworkGrowth] = ()
    """Regions whose probes waited longer outside the servers, largest growth first. The latencies
    of requests do not contain this time."""
    contradictions: Sequence[str] = ()
    """Contradictions in the data, each described by one sentence."""

    @property
    def excess_s(self) -> float | None:
        """Growth of the slow requests' mean latency in seconds, or None if there is too little
        data."""
        if self.now_s is None or self.baseline_s is None:
            return None
        return self.now_s - self.baseline_s

    @property
    def unchanged(self) -> bool:
        """True if the slow requests' mean latency changed by at most the share `UNCHANGED`."""
        return abs(self.excess_s or 0.0) <= UNCHANGED * (self.baseline_s or 0.0)

    @property
    def deciding(self) -> Sequence[Attainment]:
        """The attainments on which the verdict depends."""
        return [each for each in self.attainments if each.decides]

    @property
    def grew_within_objectives(self) -> bool:
        """True if the slow requests' mean latency grew, but no objective on which the verdict
        depends shows an incident."""
        kept = self.verdict is ExplanationVerdict.NO_INCIDENT and bool(self.deciding)
        return kept and not self.unchanged and (self.excess_s or 0.0) > 0

    @property
    def worst_missed(self) -> Attainment | None:
        """The missed objective with the largest share of slow requests. Only objectives on which
        the verdict depends are considered. None if the window misses none of these objectives."""
        missed = (each for each in self.deciding if each.missed)
        return max(missed, key=lambda each: each.slow / each.requests, default=None)
