"""Select the slow tail of the requests, and compute confidence intervals of its mean.

Pure. The tail is the slowest share of a time range's requests. The diagnosis explains the tail's
mean latency (the expected shortfall) and not a percentile, because this mean is the sum of the
means of the latency's parts. A percentile is not the sum of the parts' percentiles. Requests of the
same minute share their server's state. So the confidence intervals are computed by resampling
minutes and not single requests.

Sources: expected-shortfall allocation, Tasche 1999; block bootstrap, Künsch 1989.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from diagnosis.inputs.requests import BoolArray, FloatArray, IntArray

SHARES: Final = (0.01, 0.05, 0.10, 0.25, 0.5)
"""Candidate sizes of the tail, as shares of all requests. The smallest share with at least
`MIN_TAIL_REQUESTS` requests is used."""

MIN_TAIL_REQUESTS: Final = 15
"""Minimum number of requests in a tail. The standard error of the mean of 15 exponentially
distributed values is 26 % of their mean."""

TAIL_GROWTH_RATIO: Final = 1.6
"""Minimum growth factor of the share of requests that are slower than the fastest request of the
baseline's tail. Without a fault, the largest of 599 lower bounds of this factor was 1.10. Bursts of
recorded traffic cause factors above 1.10 (`benchmarks/attainment.py`)."""
BODY_GROWTH_RATIOS: Final = {0.25: 1.35, 0.5: 1.2}
"""Minimum growth factor of the share of requests that are slower than the baseline's 75th
percentile (key 0.25) or median (key 0.5). It detects a growth of the latency of all requests, which
the tail alone does not show. Without a fault, the largest of 599 lower bounds of these factors were
1.09 and 1.05."""

MAX_WIDE_TAIL: Final = 20_000
"""Maximum number of requests in a widened tail. With more requests, the computation would take too
long, because the growth of each request is divided into terms."""

REPLICATES: Final = 400
"""Number of bootstrap replicates. The 0.5 % quantile lies between the second and the third
replicate."""
GROUPS: Final = 1_000
"""Maximum number of groups of neighbouring ranks."""
BLOCK_S: Final = 60.0
"""Maximum length of a block of time. Requests of the same minute are correlated."""
MIN_BLOCKS: Final = 12
"""Minimum number of blocks of time. In a short range, the blocks are shorter than a minute."""


@dataclass(frozen=True, slots=True)
class SortedLatencies:
    """The known latencies of a time range, in descending order. `rows` are the indices of the
    requests. `blocks` are the indices of their blocks (minutes)."""

    rows: IntArray
    latency_s: FloatArray
    blocks: IntArray
    block_count: int

    def __len__(self) -> int:
        return int(self.rows.size)

    def tail(self, share: float) -> int:
        """Return the number of requests in the tail that contains this share of the requests."""
        return max(1, int(np.ceil(len(self) * share))) if len(self) else 0

    def only(self, chosen: BoolArray) -> "SortedLatencies":
        """Return only the latencies of the requests for which the mask `chosen` is true."""
        return SortedLatencies(
            self.rows[chosen], self.latency_s[chosen], self.blocks[chosen], self.block_count
        )


def sort_latencies(
    latency_s: FloatArray, received_unix_ns: IntArray, from_unix_ns: int, seconds: float
) -> SortedLatencies:
    """Sort the known latencies of one time range.

    Args:
        latency_s: (n,) latencies in seconds, or NaN if unknown.
        received_unix_ns: (n,) when each request was received.
    """
    rows = np.flatnonzero(np.isfinite(latency_s))
    rows = rows[np.argsort(-latency_s[rows])]
    # All blocks have the same length, because `DiagnosisCase` and the onset compute the time of a
    # block from the number of blocks.
    count = max(MIN_BLOCKS, int(np.ceil(seconds / BLOCK_S)))
    blocks = ((received_unix_ns[rows] - from_unix_ns) / 1e9 / seconds * count).astype(np.int64)
    return SortedLatencies(rows, latency_s[rows], np.clip(blocks, 0, count - 1), count)


def share_for(now: SortedLatencies, baseline: SortedLatencies) -> float | None:
    """Return the size of the tail as a share of all requests. Both time ranges use the same share.
    Return None if a range has too few requests."""
    fewest = min(len(now), len(baseline))
    return next((share for share in SHARES if fewest * share >= MIN_TAIL_REQUESTS), None)


def needed() -> int:
    """Return the minimum number of requests in each range for a verdict."""
    return int(np.ceil(MIN_TAIL_REQUESTS / SHARES[-1]))


def resampled_blocks(count: int, replicates: int = REPLICATES, seed: int = 0) -> FloatArray:
    """Return how often each block of time is drawn in each bootstrap replicate: (replicates,
    count). A replicate is a sample of `count` blocks, drawn with replacement."""
    draw = np.random.default_rng([seed, count])
    return draw.multinomial(count, np.full(count, 1.0 / count), size=replicates).astype(float)


def tail_means(of: SortedLatencies, share: float, drawn: FloatArray) -> FloatArray:
    """Return the tail's mean latency in each bootstrap replicate, in seconds: (replicates,). The
    threshold of the tail is determined in each replicate."""
    numbers, summed_s, _ = _ranked(of, share, drawn)
    wanted = share * (drawn @ _sizes(of))
    before = np.cumsum(numbers, axis=1) - numbers
    taken = np.clip(wanted[:, None] - before, 0.0, numbers)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(numbers > 0, summed_s / numbers, 0.0)
        return np.asarray((taken * means).sum(axis=1) / taken.sum(axis=1))


def tail_starts(of: SortedLatencies, share: float, drawn: FloatArray) -> FloatArray:
    """Return the latency at which each bootstrap replicate's tail begins, in seconds:
    (replicates,)."""
    numbers, _, lowest_s = _ranked(of, share, drawn)
    wanted = share * (drawn @ _sizes(of))
    place = (np.cumsum(numbers, axis=1) < wanted[:, None]).sum(axis=1)
    return np.asarray(lowest_s[np.minimum(place, lowest_s.size - 1)])


def _ranked(
    of: SortedLatencies, share: float, drawn: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Divide the slowest requests into groups of neighbouring ranks, so that less data is
    resampled.

    Returns: the number of requests of each group in each replicate: (replicates, groups); the sum
    of these requests' latencies: (replicates, groups); the lowest latency of each group: (groups,).

    If groups have several requests, the tail's mean has an error. The error is smaller than the
    spread of the latencies in the group that contains the tail's threshold.
    """
    # Requests beyond this rank practically never belong to the tail of a bootstrap replicate.
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


def _sizes(of: SortedLatencies) -> IntArray:
    return np.bincount(of.blocks, minlength=of.block_count)


def shares_over(of: SortedLatencies, threshold_s: float, drawn: FloatArray) -> FloatArray:
    """For each bootstrap replicate, return the share of requests that are slower than a threshold:
    (replicates,)."""
    over = np.bincount(of.blocks[of.latency_s > threshold_s], minlength=of.block_count)
    return np.asarray((drawn @ over) / np.maximum(drawn @ _sizes(of), 1.0))


def interval(replicates: FloatArray, outside: float = 0.05) -> tuple[float, float]:
    """Return the interval that excludes only the share `outside` of the replicates."""
    low, high = np.nanquantile(replicates, [outside / 2, 1 - outside / 2])
    return float(low), float(high)
