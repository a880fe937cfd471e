"""Confidence intervals of the effect of a change, from resampled blocks of time. Pure.

Requests of the same second share engine steps and are not independent, so blocks are drawn, not
requests. A gate in a deployment pipeline computes the result many times; each computation is a
look. By default, an interval is valid for all looks together.

Sources: Künsch, Annals of Statistics 1989, for blocks; Waudby-Smith, Arbour, Sinha, Kennedy and
Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences", Annals of
Statistics 2024, equation 9, for all looks.
"""

from collections.abc import Callable
from math import ceil, inf, log, sqrt
from typing import Final, NamedTuple, TypeVar

import numpy as np

from analysis.compare.parts import Equal, SideComparison
from analysis.corrected_prediction import small_sample_factor
from replay.arrivals import FloatArray, IntArray
from telemetry.quantiles import Z_95

DRAWS: Final = 100
"""The error of a standard deviation from 100 draws is about 7 %."""
BLOCKS: Final = 20
"""Target number of blocks in a window."""
SHORTEST_S: Final = 5.0
LONGEST_S: Final = 60.0
"""Short windows need short blocks to estimate the variance."""
MIN_BLOCKS: Final = 8
"""Minimum number of blocks with requests on each side."""
MODEL_ERROR: Final = 0.007
"""Relative standard deviation of the error of the expected latencies. It is the same in all draws,
so it is added to each interval. Without it, the single-look intervals contained the true change in
only 14 to 20 of 20 pairs of simulated windows."""
ERROR: Final = 0.05
"""Probability that an interval does not contain the true change, at a single look or at any of all
looks."""
TUNED_BLOCKS: Final = 20
"""Number of blocks at which the all-looks interval is narrowest, relative to a single look. For 5
to 400 blocks, it is at most a fifth wider than that."""


Statistic = TypeVar("Statistic")


class Interval(NamedTuple):
    """A 95 % confidence interval."""

    low: float
    high: float


def block_s(duration_s: float) -> float:
    """Length of a block, for a window of this duration."""
    return float(np.clip(duration_s / BLOCKS, SHORTEST_S, LONGEST_S))


def blocks_of(at_s: FloatArray) -> list[IntArray]:
    """The indices of the requests in each block of time, without empty blocks.

    Args:
        at_s: (n,) when each request was received; n is at least 1.
    """
    duration_s = float(np.ptp(at_s))
    last = max(ceil(duration_s / block_s(duration_s)) - 1, 0)
    numbers = np.floor((at_s - at_s.min()) / block_s(duration_s)).astype(np.int64)
    numbers = np.minimum(numbers, last)
    order = np.argsort(numbers, kind="stable")
    _, starts = np.unique(numbers[order], return_index=True)
    return np.split(order, starts[1:])


def draws_of(
    comparison: SideComparison,
    statistic: Callable[[Equal], Statistic],
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Statistic]:
    """Draw blocks of time before and after the change, and return a statistic of each draw."""
    chance = np.random.default_rng(seed)
    before = blocks_of(comparison.before.at_s)
    after = blocks_of(comparison.after.at_s)
    return [
        statistic(comparison.resampled(_drawn(before, chance), _drawn(after, chance)))
        for _ in range(draws)
    ]


def _drawn(blocks: list[IntArray], chance: np.random.Generator) -> IntArray:
    return np.concatenate([blocks[place] for place in chance.integers(0, len(blocks), len(blocks))])


def reach_of(blocks: int, looks: bool) -> float:
    """Half of the width of an interval, in standard errors.

    Args:
        blocks: of the side with fewer blocks of time.
        looks: whether the interval must be valid for all looks together.
    """
    normal = all_looks(blocks) if looks else Z_95
    return normal * (small_sample_factor(blocks, normal) or inf)


def spread_of(drawn: FloatArray) -> FloatArray:
    """Standard errors of estimates, from the middle 68 % of their draws (first axis)."""
    low, high = np.nanquantile(drawn, (0.1587, 0.8413), axis=0)
    return np.asarray(high - low) / 2


def all_looks(blocks: int) -> float:
    """Half of the width of an interval that is valid for all looks together, in standard errors."""
    tuned = (-2 * log(ERROR) + log(1 - 2 * log(ERROR))) / TUNED_BLOCKS
    spread = blocks * tuned
    return sqrt((1 + 1 / spread) * log((1 + spread) / ERROR**2))
