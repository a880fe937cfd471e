"""Count requests by time and latency, as a grid. Pure."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.over_time.columns import FloatArray, IntArray
from analysis.over_time.time_bins import SECOND_NS, Bins, bins_of_width

COLUMNS: Final = 100
ROWS: Final = 30
MIN_S: Final = 1e-4
"""Shorter latencies are drawn at this value, because a logarithmic axis has no zero."""


@dataclass(frozen=True, slots=True)
class LatencyDistribution:
    """The number of requests by latency and time. Shape (rows, columns).

    Row i has the latencies from edges_s[i] to edges_s[i + 1]. All rows have the same height on a
    logarithmic axis.
    """

    bins: Bins
    edges_s: FloatArray
    counts: NDArray[np.int64]

    @property
    def middles_s(self) -> FloatArray:
        """The latency in seconds at which charts draw each row. Shape (rows,)."""
        return np.asarray(np.sqrt(self.edges_s[:-1] * self.edges_s[1:]))


def distribution(
    received_unix_ns: IntArray, latency_s: FloatArray, from_unix_ns: int, to_unix_ns: int
) -> LatencyDistribution | None:
    """Count requests by time and latency, or return None if all latencies are unknown.

    `latency_s` is NaN if a latency is unknown. Shape (n,).
    """
    inside = (received_unix_ns >= from_unix_ns) & (received_unix_ns < to_unix_ns)
    known = inside & np.isfinite(latency_s) & (latency_s >= 0)
    if not known.any():
        return None
    at, values = received_unix_ns[known], np.maximum(latency_s[known], MIN_S)
    width_s = max(1, math.ceil((to_unix_ns - from_unix_ns) / COLUMNS / SECOND_NS))
    bins = bins_of_width(from_unix_ns, to_unix_ns, width_s * SECOND_NS)
    low, high = float(values.min()), float(values.max())
    if high < low * 1.5:
        low, high = low / 1.5, high * 1.5
    edges = np.geomspace(low * 0.999, high * 1.001, ROWS + 1)
    row = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, ROWS - 1)
    cells = np.bincount(row * bins.count + bins.index(at), minlength=ROWS * bins.count)
    return LatencyDistribution(bins, edges, cells.reshape(ROWS, bins.count))
