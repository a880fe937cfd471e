"""Match each request after the change with requests before the change.

The README describes the method. Pure.

Sources: Abadie and Imbens, "Bias-corrected matching estimators", JBES 2011; Kish, "Survey
Sampling", 1965, for the effective sample size.
"""

from typing import Final, NamedTuple

import numpy as np

from replay.arrivals import BoolArray, FloatArray, IntArray

MATCHES: Final = 30
"""Number of matches in a large group. The mean of 30 latencies has a fifth of the standard
deviation of one latency."""
FEWER: Final = (10, 15)
"""Numbers of matches in groups of fewer than 75 (5 · 15) and 150 (5 · 30) requests."""
FARTHEST: Final = 0.7
"""Maximum distance of a compared request from its matches. The distance is the median over the
matches of |ln(expected latency of the request / expected latency of the match)|. At a distance of
0.7, half of the matches differ by a factor of at most 2."""
BEYOND: Final = 1.1
"""Maximum ratio of a request's work to the largest work before the change. The maximum applies to
each kind of work, and also to the work of other requests that run at the same time. Requests above
it are not compared."""

_GOLDEN: Final = 0.618034
"""The golden ratio minus 1. The fractional parts of its multiples are spread evenly from 0 to 1."""


class GroupedRequests(NamedTuple):
    """The groups and expected latencies of the n requests of one side."""

    number: IntArray
    expected_s: FloatArray


class Matches(NamedTuple):
    """The matches of m requests after the change."""

    rows: IntArray
    """(m, MATCHES) indices of requests before the change. A small group has fewer matches, which
    are repeated."""
    scale: FloatArray
    """(m, MATCHES) factors by which the latencies of the matches are multiplied."""
    there: BoolArray
    """(m,) whether each request's group has enough requests before the change."""

    def latencies(self, values_s: FloatArray) -> FloatArray:
        """The latencies of the matches, multiplied by `scale`: (m, MATCHES)."""
        return np.asarray(values_s[self.rows] * self.scale)

    def of(self, chosen: BoolArray) -> "Matches":
        """The matches of only the chosen requests after the change."""
        return Matches(self.rows[chosen], self.scale[chosen], self.there[chosen])

    def effective(self, size: int) -> float:
        """Kish's effective sample size of the requests before the change."""
        weights = np.bincount(self.rows.ravel(), minlength=size).astype(np.float64)
        return float(weights.sum() ** 2 / (weights**2).sum()) if weights.any() else 0.0


def match(before: GroupedRequests, after: GroupedRequests) -> Matches:
    """Match each request after the change with the nearest requests before the change."""
    logs = np.log(before.expected_s)
    order = np.lexsort((logs, before.number))
    groups, logs = before.number[order], logs[order]
    # The keys of consecutive groups are 1,000 apart. Any two logarithms in a group differ by less
    # than that.
    apart = 1e3
    wanted = np.log(after.expected_s)
    keys, key = groups * apart + logs, after.number * apart + wanted
    first, last = (np.searchsorted(keys, key, side=side) for side in ("left", "right"))
    # Many requests before the change may have the same expected latency, such as a queue time of 0.
    # The matches are distributed evenly among them.
    spread = np.arange(key.size) * _GOLDEN % 1
    middle = first + np.floor(spread * (last - first)).astype(np.int64)
    low = np.searchsorted(groups, after.number, side="left")
    high = np.searchsorted(groups, after.number, side="right")
    sizes = high - low
    number = np.select([sizes < 5 * FEWER[1], sizes < 5 * MATCHES], FEWER, MATCHES)
    start = np.clip(middle - number // 2, low, np.maximum(high - number, low))
    places = start[:, None] + np.arange(MATCHES) % number[:, None]
    places = np.minimum(places, max(order.size - 1, 0))
    scale = np.exp(wanted[:, None] - logs[places])
    return Matches(order[places], scale, sizes >= FEWER[0])


def near(matches: Matches) -> BoolArray:
    """Return whether each request has enough matches whose expected latencies are near its own."""
    middle = np.median(np.abs(np.log(matches.scale)), axis=1)
    return np.asarray(matches.there & (middle <= FARTHEST))


def is_in_range_before(before: FloatArray, after: FloatArray) -> BoolArray:
    """Return whether each request's amounts of work are at most `BEYOND` times the largest before:
    (m,).

    Args:
        before, after: (n, k) and (m, k) amounts of each of k kinds of work.
    """
    return np.asarray((after <= before.max(axis=0) * BEYOND).all(axis=1))
