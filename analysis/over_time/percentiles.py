"""Percentiles per time bin, with confidence intervals (`telemetry.quantiles`). Pure.

A percentile is a measured value (the exact nearest rank), never an average. If a bin has too few
requests for a confidence interval, it has no percentile.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.over_time.columns import FloatArray, IntArray
from telemetry.quantiles import Z_95, quantile, rank_interval

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class PercentileSeries:
    """The values of a percentile, or NaN in bins with too few requests. Shape (bins,)."""

    quantile: float
    value_s: FloatArray
    low_s: FloatArray
    high_s: FloatArray


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The percentiles of one latency, per time bin."""

    requests: IntArray
    series: dict[str, PercentileSeries]


def ranks_of(number: IntArray, q: float) -> tuple[IntArray, IntArray, IntArray]:
    """The ranks of a percentile and of its confidence interval, for the number of requests in each
    bin."""
    # Round first: 0.07 · 100 is 7.000000000000001 in floats, and its ceiling is 8.
    centre = np.round(number * q, 9)
    spread = Z_95 * np.sqrt(number * q * (1 - q))
    rank = np.ceil(centre).astype(np.int64)
    low = np.floor(centre - spread).astype(np.int64)
    high = np.ceil(centre + spread).astype(np.int64)
    return rank, low, high


def per_bin(values_s: FloatArray, index: IntArray, bins: int) -> Percentiles:
    """The percentiles of each bin.

    Args:
        values_s: the latencies in seconds. NaN values are not counted. Shape (n,).
        index: the bin of each request. Shape (n,).
    """
    known = ~np.isnan(values_s)
    values, index = values_s[known], index[known]
    order = np.lexsort((values, index))
    ordered = values[order]
    starts = np.searchsorted(index[order], np.arange(bins + 1))
    number = np.diff(starts)
    return Percentiles(
        requests=number,
        series={name: _series(ordered, starts[:-1], number, q) for name, q in QUANTILES.items()},
    )


def _series(ordered: FloatArray, starts: IntArray, number: IntArray, q: float) -> PercentileSeries:
    rank, low, high = ranks_of(number, q)
    enough = (low >= 1) & (high <= number) & (number > 0)

    def at(ranks: IntArray) -> FloatArray:
        picked = np.full(number.shape, math.nan)
        picked[enough] = ordered[(starts + ranks - 1)[enough]]
        return picked

    return PercentileSeries(q, value_s=at(rank), low_s=at(low), high_s=at(high))


@dataclass(frozen=True, slots=True)
class PercentileEstimate:
    """A percentile and its 95 % interval. A value is None if there are too few requests."""

    requests: int
    value_s: float | None
    low_s: float | None
    high_s: float | None


def estimate(values_s: FloatArray, quantile_name: str) -> PercentileEstimate:
    """A percentile (a key of `QUANTILES`) of values in seconds. NaN is not counted. Shape (n,)."""
    known = values_s[~np.isnan(values_s)]
    wanted = QUANTILES[quantile_name]
    interval = rank_interval(known, wanted)
    if interval is None:
        return PercentileEstimate(known.size, None, None, None)
    return PercentileEstimate(known.size, quantile(known, wanted), *interval)
