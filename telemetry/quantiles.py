"""Quantiles of a sample, and how far they are to be trusted.

Pure. A quantile is always a value that was observed: the nearest rank, ⌈n·q⌉ of n, with no
interpolation between two requests that did not happen. Its interval is two more observed
values, by rank, and assumes nothing of the distribution.

Source: Conover, Practical Nonparametric Statistics, 3rd ed., §3.2.
"""

from fractions import Fraction
from functools import lru_cache
from itertools import count
from math import ceil, floor, sqrt

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

Z_95 = 1.96
"""Standard deviations to either side that hold 95 % of a normal distribution."""


def quantile(values: FloatArray, q: float) -> float | None:
    """The smallest observed value that at least the share q of the values do not exceed.

    Args:
        values: (n,) in any order; unknown ones left out beforehand.
        q: in (0, 1), read as the decimal it is written as: 0.07 of 100 is rank 7.

    Returns:
        One of the values; None where there are none.

    Raises:
        ValueError: q outside (0, 1), or a value is NaN.
    """
    _check(values)
    rank = nearest_rank(values.size, q)
    return _at_ranks(values, rank)[0] if values.size else None


def nearest_rank(number: int, q: float) -> int:
    """The rank of the quantile among `number` values, counted from 1; 0 if there are none.

    Raises:
        ValueError: q outside (0, 1).
    """
    _check_share(q)
    share = _decimal(q)
    return -(-share.numerator * number // share.denominator)


def rank_interval(values: FloatArray, q: float, z: float = Z_95) -> tuple[float, float] | None:
    """The values between which the quantile of the process lies, 95 times in 100 for z = 1.96.

    The ranks are n·q ± z·√(n·q·(1−q)), rounded outwards: for n to 5,000 and q of 0.5 to 0.99
    the exact (binomial) coverage is then at least 94.7 %.

    Args:
        values: (n,) in any order; unknown ones left out beforehand.
        q: in (0, 1).
        z: standard deviations to either side, above 0.

    Returns:
        (low, high), both observed values; None if a rank falls outside the sample: for p99
        below 381 values, for p50 below 8.

    Raises:
        ValueError: q outside (0, 1), z not above 0, or a value is NaN.
    """
    _check(values)
    ranks = interval_ranks(values.size, q, z)
    if ranks is None:
        return None
    at_low, at_high = _at_ranks(values, *ranks)
    return at_low, at_high


def interval_ranks(number: int, q: float, z: float = Z_95) -> tuple[int, int] | None:
    """The ranks that `rank_interval` takes its values from; None where one falls outside.

    Raises:
        ValueError: q outside (0, 1), or z not above 0.
    """
    _check_share(q)
    if not z > 0:
        raise ValueError(f"z must be above 0, not {z}")
    middle = float(number * _decimal(q))
    reach = z * sqrt(number * q * (1 - q))
    low, high = floor(middle - reach), ceil(middle + reach)
    return None if low < 1 or high > number else (low, high)


@lru_cache(maxsize=64)
def least_number(q: float) -> int:
    """How many values it takes for the 95 % interval of a quantile to lie within them.

    Raises:
        ValueError: q outside (0, 1).
    """
    return next(number for number in count(1) if interval_ranks(number, q) is not None)


def _check_share(q: float) -> None:
    if not 0 < q < 1:
        raise ValueError(f"q must lie between 0 and 1, not {q}")


def _check(values: FloatArray) -> None:
    if np.isnan(values).any():
        raise ValueError("values must not hold NaN: leave unknown ones out")


@lru_cache(maxsize=64)
def _decimal(q: float) -> Fraction:
    """q as it is written: the binary 0.07 times 100 is a little more than 7."""
    return Fraction(repr(float(q)))


def _at_ranks(values: FloatArray, *ranks: int) -> list[float]:
    """The values at ranks counted from 1."""
    places = [rank - 1 for rank in ranks]
    ordered = np.partition(values, places)
    return [float(ordered[place]) for place in places]
