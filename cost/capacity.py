"""The highest rate of requests at which the objectives were kept, from noisy stretches of time.

Pure. The rate of the best stretch is a maximum over noise: it grows with the number of stretches,
because some stretch receives more requests than its load, and some overloaded one is lucky. Both
effects are removed:

1. Each stretch's requests are thinned into two halves at random. Counts of independent arrivals
   have independent halves, given the load. Stretches are ordered by one half; rates are measured
   from the other, which the ordering did not look at and so did not inflate.
   Source: Neufeld, Dharamshi, Gao and Witten, "Data thinning for convolution-closed
   distributions", Journal of Machine Learning Research 25 (2024).
2. Neighbours in that order are pooled into bands, and the share of good requests
   is fitted by a function that never rises with the rate. A lucky stretch among bad ones is
   averaged with them.
   Source: Ayer, Brunk, Ewing, Reid and Silverman, "An empirical distribution function for sampling
   with incomplete information", Annals of Mathematical Statistics 26 (1955): pooling of adjacent
   violators.
3. A rate is kept where that fit is at least one standard error above the target, computed from the
   differences between stretches: the end of a fit of this kind is the least certain part of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from telemetry.accounts import FloatArray, IntArray

MIN_REQUESTS: Final = 100
"""The least number of requests to judge by. With fewer, a rate that meets an objective is luck."""
BAND_REQUESTS: Final = 2_500
"""Requests from which the rate of a band is measured: its standard error is 1/√2500 = 2 %."""

BAND_STRETCHES: Final = 6
"""The least number of five-minute stretches in a band, so half an hour at least. One stretch does
not show how much stretches differ. With bands of one stretch, a fleet that was always overloaded
by 20 % seemed to meet its objective in 14 of 80 simulations; with six, in none of 120."""


@dataclass(frozen=True, slots=True)
class ObjectiveCounts:
    """The counts of one objective, in stretches of equal length."""

    target: float
    good: IntArray
    """(n,) good requests in each stretch; the stretches are the same for all objectives."""
    every: IntArray
    """(n,) all requests that count; 0 where there were none."""


@dataclass(frozen=True, slots=True)
class SustainableRate:
    """The highest rate at which the objectives were met."""

    requests: int
    """Requests counted by the objective that counts most; 0 if there is no objective."""
    rps: float | None
    """The highest rate at which all objectives were met; None if there was none."""

    @property
    def known(self) -> bool:
        """Whether enough requests were counted to judge by."""
        return self.requests >= MIN_REQUESTS


def sustainable_rate(
    objectives: Sequence[ObjectiveCounts], length_s: float, seed: int = 0
) -> SustainableRate:
    """Return the highest rate of requests at which all objectives were met.

    Args:
        objectives: the counts of each in the same stretches.
        length_s: of each stretch.
        seed: of the thinning; the same one gives the same answer.
    """
    if not objectives:
        return SustainableRate(0, None)
    every = max((each.every for each in objectives), key=lambda each: int(each.sum()))
    requests = int(every.sum())
    if requests < MIN_REQUESTS:
        return SustainableRate(requests, None)
    ordering = np.random.default_rng(seed).binomial(every, 0.5)
    there = np.flatnonzero(every > 0)
    order = there[np.argsort(-ordering[there], kind="stable")]
    measured = (every - ordering)[order]
    band = _bands(measured)
    kept = np.ones(int(band[-1]) + 1, bool)
    for each in objectives:
        kept &= _kept(each, order, band)
    if not kept.any():
        return SustainableRate(requests, None)
    best = int(np.argmax(kept))
    # The other half of the requests was used to order them.
    rps = 2.0 * float(measured[band == best].sum()) / (length_s * int((band == best).sum()))
    return SustainableRate(requests, rps)


def _bands(measured: IntArray) -> IntArray:
    """(n,) the band of each stretch, in their order; the last one takes what is left over."""
    band = np.zeros(measured.size, np.int64)
    number, requests, begun = 0, 0, 0
    for place, each in enumerate(measured.tolist()):
        if requests >= BAND_REQUESTS and place - begun >= BAND_STRETCHES:
            number, requests, begun = number + 1, 0, place
        band[place] = number
        requests += each
    if number and (requests < BAND_REQUESTS or measured.size - begun < BAND_STRETCHES):
        band[begun:] = number - 1
    return band


def _kept(judged: ObjectiveCounts, order: IntArray, band: IntArray) -> NDArray[np.bool_]:
    """(bands,) whether the objective was kept in each, from the highest rate to the lowest."""
    good, every = judged.good[order].astype(float), judged.every[order].astype(float)
    block = _pooled(*(_summed(band, each, int(band[-1]) + 1) for each in (good, every)))[band]
    goods, everys = (_summed(block, each, int(block[-1]) + 1) for each in (good, every))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(everys > 0, goods / everys, 1.0)
        apart = _summed(block, (good - share[block] * every) ** 2, share.size)
        error = np.where(everys > 0, np.sqrt(np.maximum(apart, share * (1 - share) * everys)), 0.0)
        error = np.where(everys > 0, error / everys, 0.0)
    places = np.searchsorted(band, np.arange(int(band[-1]) + 1))
    return np.asarray(share - error >= judged.target)[block[places]]


def _summed(which: IntArray, values: FloatArray, number: int) -> FloatArray:
    return np.asarray(np.bincount(which, values, number), np.float64)


def _pooled(good: FloatArray, every: FloatArray) -> IntArray:
    """(n,) the block of each band, so that the share of good requests rises from block to block."""
    blocks: list[list[float]] = []
    for one, of in zip(good.tolist(), every.tolist(), strict=True):
        blocks.append([one, of, 1])
        # a/b ≥ c/d as a·d ≥ c·b, which holds of empty bands, too.
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    return np.repeat(np.arange(len(blocks)), [int(each[2]) for each in blocks])
