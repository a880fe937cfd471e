"""Find masked causes: causes that delay many requests, while a larger cause delays the slowest
requests more.

Pure. The detectors run a second time on a wider tail (a larger share of the requests). Each cause
in the wider tail gets two values. `alone` is the time that it adds if no other cause is present.
`here` is the time that it adds if all other causes are present. A cause is masked if `here` is less
than `NAMED_SHARE` of the time that all causes add.

    share = (alone + here) / 2 / (time that all causes add together)

Source: Shapley value (1953). The cause and all other causes together are the two players of the
game.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from diagnosis.causes.registry import DETECTORS
from diagnosis.claim import NAMED_SHARE, Claim, divide_terms
from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.requests import FloatArray
from diagnosis.latency.tail import MAX_WIDE_TAIL, SortedLatencies

WIDE: Final = 0.5
"""Size of the wider tail, as a share of all requests."""


class MaskedCause(NamedTuple):
    """The claim of a masked cause, and its share."""

    claim: Claim
    share: float
    alone_s: float


def wide_share(slow: SortedLatencies, share: float) -> float | None:
    """Return the size of the wider tail, or None if the tail is already at least as large."""
    wide = min(WIDE, MAX_WIDE_TAIL / max(len(slow), 1))
    return wide if wide > share else None


def all_claims(case: DiagnosisCase) -> list[Claim]:
    """Return the claims (the causes with the terms that they explain) of all detectors."""
    return [claim for detect in DETECTORS.values() if (claim := detect(case)) is not None]


def masked_causes(
    wide: DiagnosisCase,
    slow: SortedLatencies,
    share: float,
    named: Sequence[str],
) -> list[MaskedCause]:
    """Return the masked causes, in the order of `DETECTORS`.

    Args:
        slow: the window's requests, slowest first.
        share: the share of the window's requests that is slow.
        named: the causes that were found in the slow requests, at least one. The cause with the
            largest share is first.
    """
    claims = all_claims(wide)
    game = _WithoutCauses(wide, claims, slow, share)
    first = next((place for place, claim in enumerate(claims) if claim.cause == named[0]), None)
    if first is None or game.of_all(first) < NAMED_SHARE:
        return []  # the wider tail and the slowest requests are slow for different reasons
    found = []
    for place, claim in enumerate(claims):
        alone_s, here_s = game.adds_s(place)
        of_all = game.of_all(place)
        masked = here_s < NAMED_SHARE * game.both_s
        if claim.cause not in named and masked and of_all >= NAMED_SHARE:
            found.append(MaskedCause(claim, min(of_all, 1.0), alone_s))
    return found


class _WithoutCauses:
    """Computes the mean latency that the slow requests would have without some of the causes."""

    def __init__(
        self, wide: DiagnosisCase, claims: Sequence[Claim], slow: SortedLatencies, share: float
    ) -> None:
        weights = divide_terms(claims, len(wide.slow))
        self._taken = np.einsum("cnt,nt->cn", weights, np.maximum(wide.terms, 0.0))
        self._slow, self._share = slow, share
        self._latency_s = slow.latency_s[: len(wide.slow)]
        usual_s = float((self._latency_s - wide.terms.sum(axis=1)).mean())
        # If causes are removed, a request still takes at least this long: the baseline's mean
        # latency, or the lowest latency of the wider tail if that is lower.
        self._min_s = min(usual_s, float(self._latency_s[-1]))
        self._all = self._taken.sum(axis=0)
        self.whole_s = self._mean(self._latency_s)
        self.nothing_s = self._mean(self._without(self._all))

    def adds_s(self, cause: int) -> tuple[float, float]:
        """Return the seconds that a cause adds to the slow requests' mean latency: (`alone`,
        `here`)."""
        alone, others = self._with_and_without(cause)
        return self._mean(alone) - self.nothing_s, self.whole_s - self._mean(others)

    def of_all(self, cause: int) -> float:
        """Return a cause's share, by the formula in the module's docstring."""
        return sum(self.adds_s(cause)) / 2.0 / self.both_s if self.both_s > 0 else 0.0

    @property
    def both_s(self) -> float:
        """The seconds that all causes together add to the slow requests' mean latency."""
        return self.whole_s - self.nothing_s

    def _with_and_without(self, cause: int) -> Iterator[FloatArray]:
        mine = self._taken[cause]
        yield self._without(self._all - mine)
        yield self._without(mine)

    def _without(self, taken: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(self._latency_s - taken, self._min_s))

    def _mean(self, latency_s: FloatArray) -> float:
        number = self._slow.tail(self._share)
        return float(np.partition(latency_s, -number)[-number:].mean())
