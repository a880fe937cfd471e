"""Compute confidence intervals of the effect of a change, from resampled blocks of time. Pure.

Requests of the same second share engine steps, so their latencies are not independent. Each
resample (draw) therefore consists of blocks of time. A gate in a deployment pipeline repeats the
comparison many times. Each repetition is called a look. By default, the probability that the
intervals of all looks contain the true change is 95 % (a confidence sequence).

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
"""Number of resamples (draws). With 100 draws, the error of a standard deviation is about 7 %."""
BLOCKS: Final = 20
"""Target number of blocks in a window."""
SHORTEST_S: Final = 5.0
LONGEST_S: Final = 60.0
"""`SHORTEST_S` and `LONGEST_S` limit the length of a block, in seconds."""
MIN_BLOCKS: Final = 8
"""Minimum number of blocks that contain compared requests, before and after the change."""
MODEL_ERROR: Final = 0.007
"""Standard deviation of the relative error of the expected latencies. The error is the same in all
draws, so resampling does not show it, and it is added to each interval. Without it, 95 % intervals
contained the true change in only 14 to 20 of 20 pairs of simulated windows."""
ERROR: Final = 0.05
"""Probability that a confidence interval misses the true change. If the interval is for all looks,
it is the probability that any of the looks misses it."""
TUNED_BLOCKS: Final = 20
"""A confidence interval for all looks is wider than one for a single look. The ratio of their
widths is smallest for this number of blocks. For 5 to 400 blocks, the ratio is at most a fifth
larger than its minimum."""


Statistic = TypeVar("Statistic")


class Interval(NamedTuple):
    """A 95 % confidence interval."""

    low: float
    high: float


def block_s(duration_s: float) -> float:
    """Return the length in seconds of a block, for a window of this duration."""
    return float(np.clip(duration_s / BLOCKS, SHORTEST_S, LONGEST_S))


def blocks_of(at_s: FloatArray) -> list[IntArray]:
    """The indices of the requests in each block of time.

    Blocks without requests are left out.

    Args:
        at_s: (n,) when each request was received, in seconds; n is at least 1.
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
    """Resample blocks of time before and after the change, and return a statistic of each draw.

    See `blocks_of_sides`.
    """
    chance = np.random.default_rng(seed)
    before, after = blocks_of_sides(comparison)
    return [
        statistic(comparison.resampled(_drawn(before, chance), _drawn(after, chance)))
        for _ in range(draws)
    ]


def blocks_of_sides(comparison: SideComparison) -> tuple[list[IntArray], list[IntArray]]:
    """The indices of the requests in each block of time, before and after the change.

    The blocks after the change contain only requests that can be compared. At least one request
    must be comparable.
    """
    compared = np.flatnonzero(comparison.comparable)
    after = blocks_of(comparison.after.at_s[compared])
    return blocks_of(comparison.before.at_s), [compared[each] for each in after]


def _drawn(blocks: list[IntArray], chance: np.random.Generator) -> IntArray:
    return np.concatenate([blocks[place] for place in chance.integers(0, len(blocks), len(blocks))])


def reach_of(blocks: int, looks: bool) -> float:
    """Return half of the width of a confidence interval, in standard errors.

    Args:
        blocks: number of blocks of time on the side with fewer blocks.
        looks: True if the interval must be valid for all looks together.
    """
    normal = all_looks(blocks) if looks else Z_95
    return normal * (small_sample_factor(blocks, normal) or inf)


def spread_of(drawn: FloatArray) -> FloatArray:
    """Return the standard errors of estimates, from the middle 68 % of their draws.

    The first axis of `drawn` has one entry for each draw.
    """
    low, high = np.nanquantile(drawn, (0.1587, 0.8413), axis=0)
    return np.asarray(high - low) / 2


def all_looks(blocks: int) -> float:
    """Return half of the width of a confidence interval that is valid for all looks together, in
    standard errors."""
    tuned = (-2 * log(ERROR) + log(1 - 2 * log(ERROR))) / TUNED_BLOCKS
    spread = blocks * tuned
    return sqrt((1 + 1 / spread) * log((1 + spread) / ERROR**2))
