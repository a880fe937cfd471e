"""Divide a range into bins of equal width, each with enough requests. Pure.

Edges are multiples of the width in unix time. The bins of a live page therefore do not move with
its window.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.over_time.columns import IntArray

WIDTHS_S: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
    2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400, 7 * 86_400,
)  # fmt: skip
MAX_BINS: Final = 120
MIN_BINS: Final = 15
ENOUGH_PER_BIN: Final = 500
"""Minimum mean number of requests per bin. A P99 with a confidence interval needs 381 requests,
and some bins have fewer requests than the mean."""

SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of equal width. Bin i begins at first_unix_ns + i·width_ns."""

    first_unix_ns: int
    width_ns: int
    count: int

    def index(self, at_unix_ns: IntArray) -> IntArray:
        """The bin of each instant. An instant outside all bins gets the nearest bin."""
        raw: IntArray = (at_unix_ns - self.first_unix_ns) // self.width_ns
        return np.clip(raw, 0, self.count - 1)

    @property
    def middles_unix_ns(self) -> IntArray:
        """The middle of each bin, where charts draw its value."""
        return (
            self.first_unix_ns
            + np.arange(self.count, dtype=np.int64) * self.width_ns
            + self.width_ns // 2
        )

    @property
    def width_s(self) -> float:
        """Width in seconds."""
        return self.width_ns / SECOND_NS


def bins_of_width(from_unix_ns: int, to_unix_ns: int, width_ns: int) -> Bins:
    """Bins of this width that cover the half-open window."""
    first = from_unix_ns // width_ns
    last = max(first, (to_unix_ns - 1) // width_ns)
    return Bins(first * width_ns, width_ns, int(last - first) + 1)


def choose(from_unix_ns: int, to_unix_ns: int, requests: int) -> Bins:
    """The narrowest bins with ENOUGH_PER_BIN requests on average, or else the widest bins.

    Widths from WIDTHS_S are allowed if they give MIN_BINS to MAX_BINS bins. If no width is allowed,
    the narrowest width that gives at most MAX_BINS bins is used.
    """
    length_s = max(1, to_unix_ns - from_unix_ns) / SECOND_NS
    allowed = [width for width in WIDTHS_S if length_s / width <= MAX_BINS]
    if not allowed:
        allowed = [int(np.ceil(length_s / MAX_BINS / WIDTHS_S[-1])) * WIDTHS_S[-1]]
    shapely = [width for width in allowed if length_s / width >= MIN_BINS] or allowed[:1]
    enough = [width for width in shapely if requests * width / length_s >= ENOUGH_PER_BIN]
    width_s = enough[0] if enough else shapely[-1]
    return bins_of_width(from_unix_ns, to_unix_ns, width_s * SECOND_NS)
