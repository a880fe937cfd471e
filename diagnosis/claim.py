"""A detector's claim: how much of a latency's growth its cause explains.

Pure. The growth is the sum of terms, for example the wait for KV blocks. A claim contains a share
of each term, evidence, and levers. A lever is an action that may reduce the latency. If several
detectors claim the same seconds, `divide_terms` divides the seconds among them. Claims of tier ROOT
(a restart, a changed configuration) get their full share first. Claims of tier ORDINARY get the
rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.terms import TERM_INDEX, TERMS
from diagnosis.inputs.requests import FloatArray

NAMED_SHARE: Final = 0.05
"""Minimum share of a cause that is named. With one fault, the mean error of a share that was
computed without a replay is 4.6 to 13.5 points (docs/benchmarks.md)."""

ROOT: Final = 0
ORDINARY: Final = 1


@dataclass(frozen=True, slots=True)
class Evidence:
    """A measurement that supports the cause.

    `what` is its name with the unit. The values in the baseline and in the window are None if
    unknown."""

    what: str
    baseline: float | None
    now: float | None


@dataclass(frozen=True, slots=True)
class Effect:
    """The predicted effect of an action (lever) on the explained latency.

    The P99 is `now_s` now, and `then_s` with the action. `low_s` and `high_s` bound the 95 %
    interval.
    """

    now_s: float
    then_s: float
    low_s: float | None
    high_s: float | None


@dataclass(frozen=True, slots=True)
class Lever:
    """An action that may reduce the latency. If vLLM has a flag for the action, the lever contains
    it."""

    action: str
    flag: str | None = None
    change: str | None = None
    """The action as a change for `tailspan what-if`, for example `replicas=3`. It is None if a
    replay cannot predict its effect."""
    predicted: Effect | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The share of each term that one cause explains. `weights` maps a term to a share in [0, 1]. A
    share is either one number for all slow requests, or an array with one number for each
    request."""

    cause: str
    weights: Mapping[str, float | FloatArray]
    evidence: Sequence[Evidence] = ()
    levers: Sequence[Lever] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    tier: int = ORDINARY


Detector = Callable[[DiagnosisCase], Claim | None]
"""A function that returns a claim, or None if nothing in the case indicates the cause."""


def divide_terms(claims: Sequence[Claim], number: int) -> FloatArray:
    """Return each claim's share of each term of each slow request: (len(claims), number,
    len(TERMS)). For each term of a request, the shares sum to at most 1 over all claims."""
    wanted = np.zeros((len(claims), number, len(TERMS)))
    for place, claim in enumerate(claims):
        for term, weight in claim.weights.items():
            wanted[place, :, TERM_INDEX[term]] = np.clip(weight, 0.0, 1.0)
    left = np.ones((number, len(TERMS)))
    for tier in sorted({claim.tier for claim in claims}):
        places = [place for place, claim in enumerate(claims) if claim.tier == tier]
        sums = wanted[places].sum(axis=0)
        wanted[places] *= left / np.maximum(sums, 1.0)
        left = np.maximum(left - wanted[places].sum(axis=0), 0.0)
    return wanted
