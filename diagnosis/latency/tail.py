"""Select the slow tail of the requests, and compute intervals of its mean.

Pure. The tail is the slowest share of a time range's requests. The mean of the tail (the expected
shortfall) is the sum of the means of its parts. Percentiles cannot be added in this way. Requests
of the same minute share their server's state, so the intervals come from resampling minutes, not
requests.

Sources: expected-shortfall allocation, Tasche 1999; block bootstrap, Künsch 1989.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from diagnosis.inputs.requests import BoolArray, FloatArray, IntArray

SHARES: Final = (0.01, 0.05, 0.10, 0.25, 0.5)
"""Candidate tail shares. The first share whose tail has at least `MIN_TAIL_REQUESTS` requests is
used."""

MIN_TAIL_REQUESTS: Final = 15
"""Minimum number of slow requests for a meaningful mean."""

BODY_GROWTH_RATIOS: Final = {0.25: 1.35, 0.5: 1.2}
"""Minimum growth factor of the number of requests slower than the baseline's 75th percentile (0.25)
or median (0.5). This detects a growth of all requests, which the tail alone does not show."""

MOST_WIDE_TAIL: Final = 20_000
"""Maximum number of requests in a widened tail. More would take too long, because the growth of
each request is divided into terms."""

REPLICATES: Final = 400
GROUPS: Final = 1_000
BLOCK_S: Final = 60.0
MIN_BLOCKS: Final = 12
"""Minimum number of blocks. Blocks last a minute, but a time range shorter than twelve minutes is
divided into this many blocks."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The known latencies of a time range, slowest first.

    `rows` are the indices of the requests. `blocks` are the indices of their blocks (minutes).
    """

    rows: IntArray
    latency_s: FloatArray
    blocks: IntArray
    block_count: int

    def __len__(self) -> int:
        return int(self.rows.size)

    def tail(self, share: float) -> int:
        """Return the number of requests in the tail with this share. The tail's requests come
        first."""
        return max(1, int(np.ceil(len(self) * share))) if len(self) else 0

    def only(self, chosen: BoolArray) -> "Stretch":
        """Return the stretch with the chosen requests only."""
        return Stretch(
            self.rows[chosen], self.latency_s[chosen], self.blocks[chosen], self.block_count
        )


def stretch(
    latency_s: FloatArray, received_unix_ns: IntArray, from_unix_ns: int, seconds: float
) -> Stretch:
    """Sort the known latencies of one time range.

    Args:
        latency_s: (n,) latencies in seconds; NaN where unknown.
        received_unix_ns: (n,) when each request was received.
        from_unix_ns: start of the range.
        seconds: length of the range.
    """
    rows = np.flatnonzero(np.isfinite(latency_s))
    rows = rows[np.argsort(-latency_s[rows])]
    block_s = min(BLOCK_S, seconds / MIN_BLOCKS)
    count = max(1, int(np.ceil(seconds / block_s)))
    blocks = ((received_unix_ns[rows] - from_unix_ns) / 1e9 / block_s).astype(np.int64)
    return Stretch(rows, latency_s[rows], np.clip(blocks, 0, count - 1), count)


def share_for(now: Stretch, baseline: Stretch) -> float | None:
    """Return the tail share to use for both ranges; None if there are too few requests."""
    fewest = min(len(now), len(baseline))
    return next((share for share in SHARES if fewest * share >= MIN_TAIL_REQUESTS), None)


def needed() -> int:
    """Return the minimum number of requests in each range for a verdict."""
    return int(np.ceil(MIN_TAIL_REQUESTS / SHARES[-1]))


def resampled_blocks(count: int, replicates: int = REPLICATES, seed: int = 0) -> FloatArray:
    """Return how often each block is drawn in each bootstrap replicate: (replicates, count)."""
    draw = np.random.default_rng([seed, count])
    return draw.multinomial(count, np.full(count, 1.0 / count), size=replicates).astype(float)


def tail_means(of: Stretch, share: float, drawn: FloatArray) -> FloatArray:
    """Return the tail's mean latency in each replicate, (replicates,). Each replicate has its own
    threshold."""
    numbers, summed_s, _ = _ranked(of, share, drawn)
    wanted = share * (drawn @ _sizes(of))
    before = np.cumsum(numbers, axis=1) - numbers
    taken = np.clip(wanted[:, None] - before, 0.0, numbers)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(numbers > 0, summed_s / numbers, 0.0)
        return np.asarray((taken * means).sum(axis=1) / taken.sum(axis=1))


def tail_starts(of: Stretch, share: float, drawn: FloatArray) -> FloatArray:
    """Return the latency at which the tail begins in each replicate, (replicates,)."""
    numbers, _, lowest_s = _ranked(of, share, drawn)
    wanted = share * (drawn @ _sizes(of))
    place = (np.cumsum(numbers, axis=1) < wanted[:, None]).sum(axis=1)
    return np.asarray(lowest_s[np.minimum(place, lowest_s.size - 1)])


def _ranked(
    of: Stretch, share: float, drawn: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Group the slowest requests by rank.

    Return the number of requests of each group in each replicate and the sum of their latencies,
    both (replicates, groups), and the lowest latency of each group.

    If there are few requests, each group has a single request. With larger groups, the tail's mean
    has an error. It is smaller than the spread of the latencies in the group that contains the
    threshold.
    """
    # Requests beyond this rank are never in a resampled tail.
    reach = min(len(of), 8 * of.tail(share) + MIN_TAIL_REQUESTS)
    latency_s, blocks = of.latency_s[:reach], of.blocks[:reach]
    count = min(reach, GROUPS)
    group = np.arange(reach) * count // reach
    cell = group * of.block_count + blocks
    cells = count * of.block_count
    shape = (count, of.block_count)
    number = np.bincount(cell, minlength=cells).reshape(shape).astype(np.float64)
    seconds = np.bincount(cell, latency_s, minlength=cells).reshape(shape)
    lowest = latency_s[np.searchsorted(group, np.arange(count), side="right") - 1]
    return drawn @ number.T, drawn @ seconds.T, lowest


def _sizes(of: Stretch) -> IntArray:
    return np.bincount(of.blocks, minlength=of.block_count)


def shares_over(of: Stretch, threshold_s: float, drawn: FloatArray) -> FloatArray:
    """Return the share of requests slower than a threshold, (replicates,)."""
    over = np.bincount(of.blocks[of.latency_s > threshold_s], minlength=of.block_count)
    return np.asarray((drawn @ over) / np.maximum(drawn @ _sizes(of), 1.0))


def interval(replicates: FloatArray, outside: float = 0.05) -> tuple[float, float]:
    """Return the interval that contains all but the given share of the replicates."""
    low, high = np.nanquantile(replicates, [outside / 2, 1 - outside / 2])
    return float(low), float(high)
