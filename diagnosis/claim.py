"""What a detector says: which share of which terms is its cause's doing, and why.

Pure. Several detectors may claim the same seconds; `divide_terms` divides them, so that no second
is explained twice. Claims of a lower tier come first: a cause that brought the others about
(a restart, a changed configuration) takes its own, and the rest divide what remains.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from diagnosis.growth.case import Case
from diagnosis.growth.terms import TERM_INDEX, TERMS
from diagnosis.inputs.requests import FloatArray

ROOT: Final = 0
ORDINARY: Final = 1


@dataclass(frozen=True, slots=True)
class Evidence:
    """A number that speaks for the cause, with its unit in words; None is unknown."""

    what: str
    baseline: float | None
    now: float | None


@dataclass(frozen=True, slots=True)
class Lever:
    """What to do, in an operator's words, and the flag that does it, if one does."""

    action: str
    flag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A cause's claim. `weights`: by term, the share in [0, 1] of its excess, for all slow
    requests or for each ((n,))."""

    cause: str
    weights: Mapping[str, float | FloatArray]
    evidence: Sequence[Evidence] = ()
    levers: Sequence[Lever] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    tier: int = ORDINARY


Detector = Callable[[Case], Claim | None]
"""None: nothing of this cause is to be seen."""


def divide_terms(claims: Sequence[Claim], number: int) -> FloatArray:
    """(len(claims), number, len(TERMS)) the share of each slow request's terms that each claim
    gets; over the claims they sum to at most 1."""
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
