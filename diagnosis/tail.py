"""The slow requests, and how sure their mean is.

Pure. The tail is the slowest share of a stretch of requests; its mean (the expected shortfall)
is additive over parts, as no percentile is. Requests of the same minute share their server's
state, so the intervals come from drawing minutes anew, not requests.

Source: expected-shortfall allocation, Tasche 1999; block bootstrap, Künsch 1989.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from diagnosis.requests import FloatArray, IntArray

SHARES: Final = (0.01, 0.05, 0.10, 0.25)
"""The tail is the first of these that leaves at least `ENOUGH` requests in it."""

ENOUGH: Final = 20
"""Slow requests, for their mean to be more than an anecdote."""

REPLICATES: Final = 400
BLOCK_S: Final = 60.0
FEWEST_BLOCKS: Final = 12
"""A stretch shorter than twelve minutes is cut in twelve."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The latencies of a stretch of time, known ones only, slowest first.

    `rows` are their places in the requests; `blocks` number the minutes they lie in.
    """

    rows: IntArray
    latency_s: FloatArray
    blocks: IntArray
    block_count: int

    def __len__(self) -> int:
        return int(self.rows.size)

    def tail(self, share: float) -> int:
        """How many of the first make up the slowest share."""
        return max(1, int(np.ceil(len(self) * share))) if len(self) else 0


def stretch(
    latency_s: FloatArray, received_unix_ns: IntArray, from_unix_ns: int, seconds: float
) -> Stretch:
    """Sort the known latencies of one stretch of time.

    Args:
        latency_s: (n,) NaN where unknown.
        received_unix_ns: (n,) when each was received.
        from_unix_ns: where the stretch begins.
        seconds: how long it is.
    """
    rows = np.flatnonzero(np.isfinite(latency_s))
    rows = rows[np.argsort(-latency_s[rows], kind="stable")]
    block_s = min(BLOCK_S, seconds / FEWEST_BLOCKS)
    count = max(1, int(np.ceil(seconds / block_s)))
    blocks = ((received_unix_ns[rows] - from_unix_ns) / 1e9 / block_s).astype(np.int64)
    return Stretch(rows, latency_s[rows], np.clip(blocks, 0, count - 1), count)


def share_for(now: Stretch, baseline: Stretch) -> float | None:
    """How much of both is tail; None where there are too few requests for any."""
    fewest = min(len(now), len(baseline))
    return next((share for share in SHARES if fewest * share >= ENOUGH), None)


def needed() -> int:
    """How many requests each stretch needs for a verdict."""
    return int(np.ceil(ENOUGH / SHARES[-1]))


def drawn_blocks(count: int, replicates: int = REPLICATES, seed: int = 0) -> FloatArray:
    """(replicates, count) how often each block is drawn."""
    draw = np.random.default_rng([seed, count])
    return draw.multinomial(count, np.full(count, 1.0 / count), size=replicates).astype(float)


def tail_means(of: Stretch, share: float, drawn: FloatArray) -> FloatArray:
    """(replicates,) the tail's mean latency, its threshold found anew in each replicate."""
    # A tail drawn anew reaches at most so far down: what is below is never in it.
    reach = min(len(of), 8 * of.tail(share) + ENOUGH)
    sizes = np.bincount(of.blocks, minlength=of.block_count)
    wanted = share * (drawn @ sizes)
    weights = drawn[:, of.blocks[:reach]]
    before = np.cumsum(weights, axis=1) - weights
    taken = np.clip(wanted[:, None] - before, 0.0, weights)
    total = taken.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, taken @ of.latency_s[:reach] / total, np.nan)


def tail_starts(of: Stretch, share: float, drawn: FloatArray) -> FloatArray:
    """(replicates,) the latency at which the tail begins, found anew in each replicate."""
    reach = min(len(of), 8 * of.tail(share) + ENOUGH)
    sizes = np.bincount(of.blocks, minlength=of.block_count)
    held = np.cumsum(drawn[:, of.blocks[:reach]], axis=1)
    place = (held < (share * (drawn @ sizes))[:, None]).sum(axis=1)
    return np.asarray(of.latency_s[np.minimum(place, reach - 1)])


def shares_over(of: Stretch, threshold_s: float, drawn: FloatArray) -> FloatArray:
    """(replicates,) the share of requests slower than a threshold."""
    over = np.bincount(of.blocks[of.latency_s > threshold_s], minlength=of.block_count)
    sizes = np.bincount(of.blocks, minlength=of.block_count)
    return np.asarray((drawn @ over) / np.maximum(drawn @ sizes, 1.0))


def block_sums(values: FloatArray, blocks: IntArray, count: int) -> FloatArray:
    """(count, k) sums of the rows of each block."""
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, blocks, values)
    return sums


def interval(replicates: FloatArray) -> tuple[float, float]:
    """What 95 of 100 replicates lie between."""
    low, high = np.nanquantile(replicates, [0.025, 0.975])
    return float(low), float(high)
