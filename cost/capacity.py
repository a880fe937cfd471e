"""Estimate the highest request rate at which the objectives are met. Pure.

Some time ranges meet the objectives only by chance, so the highest rate among the ranges that meet
them would be too high as an estimate. Therefore, the estimate has four steps:

1. Divide each range's requests into two halves at random. Sort the ranges by the rate of one half,
   and measure with the other half. Source: Neufeld et al., "Data thinning for convolution-closed
   distributions", JMLR 25 (2024).
2. Combine neighbouring ranges into bands. Fit shares of good requests that never increase with the
   rate. Source: Ayer et al., "An empirical distribution function for sampling with incomplete
   information", Annals of Mathematical Statistics 26 (1955): pooling of adjacent violators.
3. A band is sustainable if its fitted share is at least one standard error above the target. The
   standard error is computed from the differences between ranges.
4. The estimate is the rate of the fastest sustainable band. If even the fastest of all bands is
   sustainable, the estimate is at least the mean rate of all ranges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from telemetry.counter_series import FloatArray, IntArray

MIN_REQUESTS: Final = 100
"""Minimum number of requests. With fewer requests, an objective may be met by chance."""
BAND_REQUESTS: Final = 2_500
"""Requests per band. The relative standard error of the band's rate is then 1/√2500 = 2 %."""

BAND_INTERVALS: Final = 6
"""Five-minute ranges per band. In simulations with a constant overload of 20 %, no band should meet
the objective. With one range per band, a band met it in 14 of 80 simulations. With six ranges per
band, a band met it in 0 of 120."""


@dataclass(frozen=True, slots=True)
class ObjectiveCounts:
    """The counts of one objective in each time range."""

    target: float
    good: IntArray
    every: IntArray


@dataclass(frozen=True, slots=True)
class SustainableRate:
    """The highest request rate at which the objectives are met."""

    requests: int
    """The largest number of requests that an objective counts."""
    rps: float | None
    """Requests per second, or None if there are too few requests or if no band is sustainable."""

    @property
    def known(self) -> bool:
        """Whether there are enough requests for an estimate."""
        return self.requests >= MIN_REQUESTS


def sustainable_rate(
    objectives: Sequence[ObjectiveCounts], lengths_s: IntArray, seed: int = 0
) -> SustainableRate:
    """The highest request rate at which all objectives are met.

    Args:
        objectives: counts of objectives with the same time ranges.
        lengths_s: length of each range in seconds: (n,).
        seed: seed of the random division into halves.
    """
    if not objectives:
        return SustainableRate(0, None)
    every = max((each.every for each in objectives), key=lambda each: int(each.sum()))
    requests = int(every.sum())
    if requests < MIN_REQUESTS:
        return SustainableRate(requests, None)
    ordering = np.random.default_rng(seed).binomial(every, 0.5)
    there = np.flatnonzero(every > 0)
    order = there[np.argsort(-(ordering / lengths_s)[there], kind="stable")]
    measured = (every - ordering)[order]
    band = _bands(measured)
    met = np.ones(int(band[-1]) + 1, bool)
    for each in objectives:
        met &= _bands_that_meet(each, order, band)
    if not met.any():
        return SustainableRate(requests, None)
    best = int(np.argmax(met))
    mean_rps = requests / float(lengths_s[there].sum())
    if len(met) == 1:
        return SustainableRate(requests, mean_rps)
    # `measured` counts only half of the requests
    rps = 2.0 * float(measured[band == best].sum()) / float(lengths_s[order][band == best].sum())
    return SustainableRate(requests, rps if best else max(rps, mean_rps))


def _bands(measured: IntArray) -> IntArray:
    """The index of each range's band: (n,). The ranges are in order of decreasing rate."""
    band = np.zeros(measured.size, np.int64)
    number, requests, begun = 0, 0, 0
    for place, each in enumerate(measured.tolist()):
        if requests >= BAND_REQUESTS and place - begun >= BAND_INTERVALS:
            number, requests, begun = number + 1, 0, place
        band[place] = number
        requests += each
    if number and (requests < BAND_REQUESTS or measured.size - begun < BAND_INTERVALS):
        band[begun:] = number - 1
    return band


def _bands_that_meet(judged: ObjectiveCounts, order: IntArray, band: IntArray) -> NDArray[np.bool_]:
    """Whether each band meets the objective, in order of decreasing rate: (bands,)."""
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
    """The bands are in order of decreasing rate. Combine neighbouring bands until the share of good
    requests increases from each band to the next."""
    blocks: list[list[float]] = []
    for one, of in zip(good.tolist(), every.tolist(), strict=True):
        blocks.append([one, of, 1])
        # compare a·d ≥ c·b instead of a/b ≥ c/d, because a band may be empty
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    return np.repeat(np.arange(len(blocks)), [int(each[2]) for each in blocks])
