"""The percentiles of a latency, from P1 to P99.9. Pure."""

from functools import lru_cache
from typing import Final

import numpy as np

from replay.arrivals import FloatArray, IntArray
from telemetry.quantiles import least_number, nearest_rank

CURVE: Final = (
    *(0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.65, 0.75, 0.85, 0.9),
    *(0.95, 0.975, 0.99, 0.995, 0.999),
)
"""The percentiles of the curve. In a normal distribution, they are about equally spaced."""


def curve_of(values: FloatArray) -> FloatArray:
    """Return the percentiles `CURVE` of the finite values, or NaN if there are none."""
    known = np.sort(values[np.isfinite(values)])
    return known[_rank_indices(known.size)] if known.size else np.full(len(CURVE), np.nan)


def shares_below(values: FloatArray, curve: FloatArray) -> FloatArray:
    """Return the share of the finite values that do not exceed each value of a curve.

    A share is NaN if it is unknown.
    """
    known = np.sort(values[np.isfinite(values)])
    if not known.size:
        return np.full(curve.size, np.nan)
    shares = np.searchsorted(known, curve, side="right") / known.size
    return np.where(np.isnan(curve), np.nan, shares)


@lru_cache(maxsize=256)
def _rank_indices(number: int) -> IntArray:
    return np.array([nearest_rank(number, q) - 1 for q in CURVE])


def shown(number: int) -> list[int]:
    """Return the indices in `CURVE` of the percentiles that `number` values are enough to
    estimate."""
    return [place for place, q in enumerate(CURVE) if number >= least_number(q)]
