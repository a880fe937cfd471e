"""Causes that a greater one hides: their requests are slow, but not among the slowest.

Pure. The slowest requests are of the cause that slows most; another may have slowed many more,
and nobody would know before the first is mended. So the claims are asked for again of a wider
tail, and each is judged by what the slow requests' mean would be with it alone, and without it:
what is taken from a request may bring others among the slowest, which no share of the slowest
tells. One that is hidden adds little where it is, and much where it is alone; its share is the
mean of both over what all add together.

Source: the mean of both is Shapley's value (1953) of a game of two, the cause and all others.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from diagnosis.causes.registry import DETECTORS
from diagnosis.claim import Claim, divide_terms
from diagnosis.growth.case import Case
from diagnosis.inputs.requests import FloatArray
from diagnosis.latency.tail import FULLY_SORTED_UP_TO, Stretch

WIDE: Final = 0.5
"""How much of the window is looked at for causes that the slowest hide."""

LEAST: Final = 0.08
"""A share below this is not told: the wider a tail, the more of it is of nothing in particular."""

_MASKED_BELOW: Final = 0.25
"""What a hidden cause adds where it is, over what it would add alone, at most."""

_SAME_CAUSE: Final = 0.3
"""The share that the first cause of the slowest has in the wider tail, too, at least; else the
two speak of different things, and the slowest go before."""


class MaskedCause(NamedTuple):
    """A claim that the slowest requests do not show."""

    claim: Claim
    share: float
    alone_s: float
    """What it alone would add to the slow requests' mean."""


def wide_share(slow: Stretch, share: float) -> float | None:
    """How much of a window to look at; None where its tail is no narrower."""
    wide = min(WIDE, FULLY_SORTED_UP_TO / max(len(slow), 1))
    return wide if wide > share else None


def all_claims(case: Case) -> list[Claim]:
    """What each detector says."""
    return [claim for detect in DETECTORS.values() if (claim := detect(case)) is not None]


def masked_causes(
    wide: Case,
    slow: Stretch,
    share: float,
    named: Sequence[str],
) -> list[MaskedCause]:
    """Find them.

    Args:
        wide: the question, of the window's and the baseline's wider tails.
        slow: the window's requests.
        share: how much of them is slow.
        named: the causes of the slow ones, largest first; there is one at least.
    """
    claims = all_claims(wide)
    game = _WithoutCauses(wide, claims, slow, share)
    first = next((place for place, claim in enumerate(claims) if claim.cause == named[0]), None)
    if first is None or game.of_all(first) < _SAME_CAUSE:
        return []
    found = []
    for place, claim in enumerate(claims):
        alone_s, here_s = game.adds_s(place)
        of_all = game.of_all(place)
        if claim.cause not in named and of_all >= LEAST and here_s <= _MASKED_BELOW * alone_s:
            found.append(MaskedCause(claim, min(of_all, 1.0), alone_s))
    return found


class _WithoutCauses:
    """The slow requests' mean, had some causes not been."""

    def __init__(self, wide: Case, claims: Sequence[Claim], slow: Stretch, share: float) -> None:
        weights = divide_terms(claims, len(wide.slow))
        self._taken = np.einsum("cnt,nt->cn", weights, np.maximum(wide.terms, 0.0))
        self._slow, self._share = slow, share
        self._latency_s = slow.latency_s[: len(wide.slow)]
        usual_s = float((self._latency_s - wide.terms.sum(axis=1)).mean())
        # Who is not in the wider tail would be relieved likewise: nobody is below the usual.
        self._least_s = min(usual_s, float(self._latency_s[-1]))
        self._all = self._taken.sum(axis=0)
        self.whole_s = self._mean(self._latency_s)
        self.nothing_s = self._mean(self._without(self._all))

    def adds_s(self, place: int) -> tuple[float, float]:
        """What a cause adds alone, and what it adds to all others."""
        alone, others = self._with_and_without(place)
        return self._mean(alone) - self.nothing_s, self.whole_s - self._mean(others)

    def of_all(self, place: int) -> float:
        """A cause's share: the mean of both over what all add together."""
        both_s = self.whole_s - self.nothing_s
        return sum(self.adds_s(place)) / 2.0 / both_s if both_s > 0 else 0.0

    def _with_and_without(self, place: int) -> Iterator[FloatArray]:
        mine = self._taken[place]
        yield self._without(self._all - mine)
        yield self._without(mine)

    def _without(self, taken: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(self._latency_s - taken, self._least_s))

    def _mean(self, latency_s: FloatArray) -> float:
        number = self._slow.tail(self._share)
        return float(np.partition(latency_s, -number)[-number:].mean())
