"""Find causes that a larger cause hides: the requests that they delay are slow, but not the
slowest.

Pure. The slowest requests show the cause with the largest delay per request. Another cause may have
delayed many more requests, and would be found only after the first is fixed. So the detectors run
again on a wider tail. For each claim, two numbers are computed: the time that its cause adds to the
slow requests' mean when it is the only cause, and the time that it adds when all other causes are
present. These numbers cannot be computed from the shares of the slowest requests, because without a
cause, other requests may be the slowest. A masked cause adds much time when it is the only cause,
but little when the other causes are present. Its share is the mean of the two numbers, divided by
the time that all causes add together.

Source: the mean of the two numbers is the Shapley value (1953) of a two-player game, in which one
player is the cause and the other player is all other causes.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from diagnosis.causes.registry import DETECTORS
from diagnosis.claim import Claim, divide_terms
from diagnosis.growth.case import Case
from diagnosis.inputs.requests import FloatArray
from diagnosis.latency.tail import MOST_WIDE_TAIL, Stretch

WIDE: Final = 0.5
"""The slowest share of the window's requests that is searched for masked causes."""

LEAST: Final = 0.08
"""Minimum share of a reported masked cause, because small claims in a wide tail are mostly
noise."""

_MASKED_BELOW: Final = 0.25
"""A cause is masked if the time that it adds when all other causes are present is below this share
of the time that it adds as the only cause."""

_SAME_CAUSE: Final = 0.3
"""Minimum share of the first cause in the wider tail. If its share is smaller, the wider tail has a
different problem, and only the slowest requests are explained."""


class MaskedCause(NamedTuple):
    """A claim whose cause is hidden in the slowest requests."""

    claim: Claim
    share: float
    alone_s: float
    """Seconds that this cause alone would add to the slow requests' mean."""


def wide_share(slow: Stretch, share: float) -> float | None:
    """Return the share of the window to search for masked causes. Return None if the tail is
    already as wide."""
    wide = min(WIDE, MOST_WIDE_TAIL / max(len(slow), 1))
    return wide if wide > share else None


def all_claims(case: Case) -> list[Claim]:
    """Return the claims of all detectors."""
    return [claim for detect in DETECTORS.values() if (claim := detect(case)) is not None]


def masked_causes(
    wide: Case,
    slow: Stretch,
    share: float,
    named: Sequence[str],
) -> list[MaskedCause]:
    """Return the causes that the slowest requests hide.

    Args:
        wide: the case with the wider tails of window and baseline.
        slow: the window's requests, slowest first.
        share: the share of the window's requests that is slow.
        named: the causes of the slow requests, largest first; at least one.
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
    """Computes the mean latency that the slow requests would have without some of the causes."""

    def __init__(self, wide: Case, claims: Sequence[Claim], slow: Stretch, share: float) -> None:
        weights = divide_terms(claims, len(wide.slow))
        self._taken = np.einsum("cnt,nt->cn", weights, np.maximum(wide.terms, 0.0))
        self._slow, self._share = slow, share
        self._latency_s = slow.latency_s[: len(wide.slow)]
        usual_s = float((self._latency_s - wide.terms.sum(axis=1)).mean())
        # Without a cause, a request is not faster than usual. If the fastest request in the wider
        # tail was faster than usual, its latency is the minimum instead.
        self._least_s = min(usual_s, float(self._latency_s[-1]))
        self._all = self._taken.sum(axis=0)
        self.whole_s = self._mean(self._latency_s)
        self.nothing_s = self._mean(self._without(self._all))

    def adds_s(self, cause: int) -> tuple[float, float]:
        """Return the seconds that a cause adds as the only cause, and the seconds that it adds when
        all other causes are present."""
        alone, others = self._with_and_without(cause)
        return self._mean(alone) - self.nothing_s, self.whole_s - self._mean(others)

    def of_all(self, cause: int) -> float:
        """Return a cause's share: the mean of the two numbers of `adds_s`, divided by the time that
        all causes add together."""
        both_s = self.whole_s - self.nothing_s
        return sum(self.adds_s(cause)) / 2.0 / both_s if both_s > 0 else 0.0

    def _with_and_without(self, cause: int) -> Iterator[FloatArray]:
        mine = self._taken[cause]
        yield self._without(self._all - mine)
        yield self._without(mine)

    def _without(self, taken: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(self._latency_s - taken, self._least_s))

    def _mean(self, latency_s: FloatArray) -> float:
        number = self._slow.tail(self._share)
        return float(np.partition(latency_s, -number)[-number:].mean())
