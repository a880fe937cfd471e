"""Match each request after the change with requests before the change.

Pure. A request is matched with the requests of its own group (tenant, route, adapter) whose
expected latency is nearest to its own. The latency of each match is multiplied by the ratio of the
two expected latencies. The results estimate the distribution of the request's latency before the
change.

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
"""Numbers of matches in small groups. They are below `MATCHES`, so that the expected latencies of
the matches stay near the expected latency of the request. A group of fewer than 75 requests (5 ·
15) has 10 matches, and a group of fewer than 150 requests (5 · 30) has 15 matches. Each number
divides `MATCHES`, so that repeated matches fill `MATCHES` columns."""
FARTHEST: Final = 0.7
"""Maximum distance of a request from its matches. The distance is the median over the matches of
|ln(expected latency of the request / expected latency of the match)|. Requests with a larger
distance are not compared. At a distance of 0.7, the two latencies differ by a factor of at most
about 2 for half of the matches."""
BEYOND: Final = 1.1
"""A request can be compared only if none of its amounts of work exceeds the largest amount before
the change by more than this factor. The amounts are those of the request itself, and those of other
requests around it."""

_GOLDEN: Final = 0.618034
"""The golden ratio minus 1. The fractional parts of its multiples are spread evenly from 0 to 1."""


class GroupedRequests(NamedTuple):
    """The groups and expected latencies of n requests: those before or those after the change."""

    number: IntArray
    """(n,) the number of each request's group."""
    expected_s: FloatArray
    """(n,) expected latency of each request, in seconds."""


class Matches(NamedTuple):
    """The matches of m requests after the change."""

    rows: IntArray
    """(m, MATCHES) indices of requests before the change. A small group has fewer matches, which
    are repeated."""
    scale: FloatArray
    """(m, MATCHES) factors by which the latencies of these requests are multiplied."""
    there: BoolArray
    """(m,) whether the group of each request has enough requests before the change."""

    def latencies(self, values_s: FloatArray) -> FloatArray:
        """Return the latencies of the matches, multiplied by `scale`: (m, MATCHES)."""
        return np.asarray(values_s[self.rows] * self.scale)

    def of(self, chosen: BoolArray) -> "Matches":
        """Return the matches of only the chosen requests after the change."""
        return Matches(self.rows[chosen], self.scale[chosen], self.there[chosen])

    def effective(self, size: int) -> float:
        """Return the effective number of requests before the change: Kish's effective sample
        size."""
        weights = np.bincount(self.rows.ravel(), minlength=size).astype(np.float64)
        return float(weights.sum() ** 2 / (weights**2).sum()) if weights.any() else 0.0


def match(before: GroupedRequests, after: GroupedRequests) -> Matches:
    """Match each request after the change with the nearest requests before the change."""
    logs = np.log(before.expected_s)
    order = np.lexsort((logs, before.number))
    groups, logs = before.number[order], logs[order]
    # One sort key combines the group and the logarithm of the latency. The keys of consecutive
    # groups are 1,000 apart, and the logarithms of any two latencies differ by less than 1,000.
    apart = 1e3
    wanted = np.log(after.expected_s)
    keys, key = groups * apart + logs, after.number * apart + wanted
    first, last = (np.searchsorted(keys, key, side=side) for side in ("left", "right"))
    # Many requests before the change have the same expected latency, such as a queue time of 0.
    # Spread the matches: two requests after the change with this latency get different matches.
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
    """Return whether all amounts of each request's work are at most `BEYOND` times the largest
    amounts before the change: (m,).

    Args:
        before: (n, k) amounts of each of k kinds of work, for n requests before the change.
        after: (m, k) the same amounts for m requests after the change.
    """
    return np.asarray((after <= before.max(axis=0) * BEYOND).all(axis=1))
