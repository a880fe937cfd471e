"""Quantiles of a set of values, and their confidence intervals. Pure.

A quantile is the observed value at the nearest rank, ⌈n·q⌉ of n. The bounds of its interval are
also observed values. The bounds are valid for any distribution. Source: Conover, Practical
Nonparametric Statistics, 3rd ed., §3.2.
"""

from fractions import Fraction
from functools import lru_cache
from itertools import count
from math import ceil, floor, sqrt

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

Z_95 = 1.96


def quantile(values: FloatArray, q: float) -> float | None:
    """The smallest value v for which at least a share q of the values is ≤ v, or None without
    values.

    Args:
        values: (n,) in any order, without NaN.
        q: in (0, 1), used as an exact decimal number.

    Raises:
        ValueError: q is outside (0, 1), or a value is NaN.
    """
    _check(values)
    rank = nearest_rank(values.size, q)
    return _at_ranks(values, rank)[0] if values.size else None


def nearest_rank(number: int, q: float) -> int:
    """The rank of a quantile among `number` values, from 1. Without values, it is 0.

    Raises:
        ValueError: q is outside (0, 1).
    """
    _check_share(q)
    share = _decimal(q)
    return -(-share.numerator * number // share.denominator)


def rank_interval(values: FloatArray, q: float, z: float = Z_95) -> tuple[float, float] | None:
    """The confidence interval of a quantile (95 % for z = 1.96): (low, high), both observed values.

    The ranks of the bounds are n·q ± z·√(n·q·(1−q)), rounded outwards. The binomial coverage is at
    least 94.7 % for n up to 5,000 and q from 0.5 to 0.99. The result is None if there are too few
    values. For p99, fewer than 381 values are too few. For p50, fewer than 8 values are too few.

    Args:
        values: (n,) in any order, without NaN.
        q: in (0, 1).
        z: half the width in standard deviations, above 0.

    Raises:
        ValueError: q is outside (0, 1), z is not above 0, or a value is NaN.
    """
    _check(values)
    ranks = interval_ranks(values.size, q, z)
    if ranks is None:
        return None
    at_low, at_high = _at_ranks(values, *ranks)
    return at_low, at_high


def interval_ranks(number: int, q: float, z: float = Z_95) -> tuple[int, int] | None:
    """The ranks of a quantile's confidence interval, or None if there are too few values.

    Raises:
        ValueError: q is outside (0, 1), or z is not above 0.
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
    """The minimum number of values for the 95 % confidence interval of a quantile.

    Raises:
        ValueError: q is outside (0, 1).
    """
    return next(number for number in count(1) if interval_ranks(number, q) is not None)


def _check_share(q: float) -> None:
    if not 0 < q < 1:
        raise ValueError(f"q must lie between 0 and 1, not {q}")


def _check(values: FloatArray) -> None:
    if np.isnan(values).any():
        raise ValueError("values must not contain NaN: leave out unknown values")


@lru_cache(maxsize=64)
def _decimal(q: float) -> Fraction:
    """The number as an exact decimal number. As floats, 0.07 × 100 is slightly above 7."""
    return Fraction(repr(float(q)))


def _at_ranks(values: FloatArray, *ranks: int) -> list[float]:
    places = [rank - 1 for rank in ranks]
    ordered = np.partition(values, places)
    return [float(ordered[place]) for place in places]
