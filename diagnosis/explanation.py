"""What an explanation says.

Pure. Seconds are of the slow requests' mean; shares are of what was added to it: the sum of the
terms that grew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from diagnosis.claim import Evidence, Lever
from diagnosis.latency.attainment import Attainment
from diagnosis.question import Question

UNCHANGED: Final = 0.1
"""A tail that moved by at most this share of the baseline's counts as unchanged."""


class Verdict(StrEnum):
    """Whether there is something to explain."""

    INCIDENT = "incident"
    NO_INCIDENT = "no_incident"
    INSUFFICIENT_DATA = "insufficient_data"


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause, with its share of what was added, in [0, 1].

    The share has no interval: none whose coverage was measured and held is known.
    """

    id: str
    share: float
    evidence: Sequence[Evidence]
    levers: Sequence[Lever]
    where: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PartGrowth:
    """One part of the latency: its mean over the baseline's slow requests and the window's."""

    part: str
    baseline_s: float
    now_s: float

    @property
    def excess_s(self) -> float:
        """What it grew by; negative where it shrank."""
        return self.now_s - self.baseline_s


@dataclass(frozen=True, slots=True)
class RiskRatio:
    """Requests of one kind that are slow more often than the others."""

    dimension: str
    value: str
    risk_ratio: float
    low: float
    high: float
    requests: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to a question.

    `tail_share` is how much of each stretch counts as slow, `excess_s` how much the slow
    requests' mean grew (the parts' excesses sum to it), `unexplained` the share of it that no
    cause takes. `needed` is how many requests each stretch needs for a verdict.
    """

    question: Question
    verdict: Verdict
    requests: int
    baseline_requests: int
    needed: int
    tail_share: float | None = None
    baseline_s: float | None = None
    now_s: float | None = None
    onset_unix_ns: int | None = None
    causes: Sequence[Cause] = ()
    unexplained: float | None = None
    parts: Sequence[PartGrowth] = ()
    dimensions: Sequence[RiskRatio] = ()
    dimensions_tested: int = 0
    attainments: Sequence[Attainment] = ()
    """How the objectives on this latency were kept, before and now."""
    contradictions: Sequence[str] = ()
    """What the data says against itself, in sentences."""

    @property
    def excess_s(self) -> float | None:
        """How much the slow requests' mean grew."""
        if self.now_s is None or self.baseline_s is None:
            return None
        return self.now_s - self.baseline_s

    @property
    def unchanged(self) -> bool:
        """Whether the slow requests' mean is within a tenth of the baseline's."""
        return abs(self.excess_s or 0.0) <= UNCHANGED * (self.baseline_s or 0.0)

    @property
    def deciding(self) -> Sequence[Attainment]:
        """The attainments of the objectives that decide whether somebody was hurt."""
        return [each for each in self.attainments if each.decides]

    @property
    def grew_within_objectives(self) -> bool:
        """Whether the slow requests' mean grew, and the objectives say that nobody was hurt."""
        kept = self.verdict is Verdict.NO_INCIDENT and bool(self.deciding)
        return kept and not self.unchanged and (self.excess_s or 0.0) > 0

    @property
    def worst_missed(self) -> Attainment | None:
        """The judging objective with the largest share of slow requests among those that the
        window misses; None where it misses none."""
        missed = (each for each in self.deciding if each.missed)
        return max(missed, key=lambda each: each.slow / each.requests, default=None)
