"""Compute predictions from measured values and two replays (decision 079).

The prediction is the measured value times the ratio of the edited and the unchanged replay. An
error of the model affects both replays, so it cancels out in the ratio.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from replay.arrivals import FloatArray
from telemetry.quantiles import Z_95

NEGLIGIBLE_S: Final = 1e-3
"""Below this duration in seconds, the difference of two replays is added, because a ratio is not
meaningful."""

LEAST_BLOCKS: Final = 5
"""Minimum number of blocks for an interval. Fewer blocks give Student's t fewer than 4 degrees of
freedom."""


class Reproduced(NamedTuple):
    """One percentile: as measured, and as replayed without edits."""

    measured: float | None
    replayed: float | None

    @property
    def error_ratio(self) -> float | None:
        """The replayed value divided by the measured value, minus 1."""
        if not self.measured or self.replayed is None:
            return None
        return self.replayed / self.measured - 1


class Predicted(NamedTuple):
    """A predicted value with its 95 % interval."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Replays(NamedTuple):
    """The latencies of one metric, in any order. NaN means unknown."""

    then: FloatArray
    """The edited replay."""
    now: FloatArray
    """The unchanged replay."""
    measured: FloatArray


def scaled(measured: float | None, now: float | None, then: float | None) -> float | None:
    """Return the measured value times the ratio of the replayed values `then` and `now`."""
    if measured is None or now is None or then is None:
        return then
    if min(measured, now) < NEGLIGIBLE_S:
        return max(0.0, measured + then - now)
    return measured * then / now


def scaled_by_rank(then: FloatArray, now: FloatArray, measured: FloatArray) -> FloatArray:
    """Return replayed values, each corrected by the error of the unchanged replay at its rank."""
    found = then.copy()
    known = np.flatnonzero(np.isfinite(then))
    now, measured = np.sort(now[np.isfinite(now)]), np.sort(measured[np.isfinite(measured)])
    if not known.size or not now.size or not measured.size:
        return found
    ranks = np.empty(known.size)
    ranks[np.argsort(then[known], kind="stable")] = (np.arange(known.size) + 0.5) / known.size
    found[known] = _corrected(then[known], ranks, now, measured)
    return found


def corrected_at(ranks: FloatArray, replays: Replays) -> FloatArray:
    """Return the predicted values at ranks from 0, the smallest, to 1, the largest."""
    then, now, measured = (np.sort(each[np.isfinite(each)]) for each in replays)
    return _corrected(_at(ranks, then), ranks, now, measured)


def _corrected(
    then: FloatArray, ranks: FloatArray, now: FloatArray, measured: FloatArray
) -> FloatArray:
    of_now, of_measured = _at(ranks, now), _at(ranks, measured)
    small = np.minimum(of_now, of_measured) < NEGLIGIBLE_S
    by_ratio = then * of_measured / np.maximum(of_now, NEGLIGIBLE_S)
    return np.where(small, np.maximum(then + of_measured - of_now, 0.0), by_ratio)


def _at(ranks: FloatArray, values: FloatArray) -> FloatArray:
    """Interpolate between sorted values, of which the i-th of n has the rank (i + ½)/n."""
    return np.interp(ranks, (np.arange(values.size) + 0.5) / values.size, values)


def rank_bounds(q: float, shares: Sequence[float], blocks: int) -> tuple[float, float] | None:
    """Return the ranks of a window between which the quantile q of a later window lies in 95 %.

    The prediction of a quantile is off by as much as the share of requests below it differs between
    two windows of the same traffic. A share is a mean over many requests, so a few blocks suffice
    for its variance. The variance of a high quantile itself would depend on the distance between
    the few slowest requests. The variance of a share is nearly independent of the share after the
    transformation arcsin √share. It counts twice, because the recorded window and a later window
    are two samples.

    Source: Woodruff, "Confidence Intervals for Medians and Other Position Measures", 1952.

    Args:
        q: in (0, 1).
        shares: for each resampled replay, the share of values that are at most the quantile q of
            the replay of the whole traffic.
        blocks: number of resampled blocks.

    Returns:
        The lower and the upper rank, or None if there are too few draws or blocks.
    """
    widening = small_sample_factor(blocks)
    if len(shares) < 2 or widening is None:
        return None
    deviation = float(np.std(np.arcsin(np.sqrt(shares)), ddof=1))
    off = Z_95 * widening * np.sqrt(2) * deviation
    middle = np.arcsin(np.sqrt(q))
    low, high = np.sin([max(middle - off, 0.0), min(middle + off, np.pi / 2)]) ** 2
    return float(low), float(high)


def small_sample_factor(blocks: int) -> float | None:
    """Return the factor that widens a normal interval from resampled blocks, because there are few
    of them; None for fewer than `LEAST_BLOCKS`.

    Resampling n blocks gives a variance that is too small by (n − 1)/n, and this variance is itself
    uncertain, so Student's t replaces the normal quantile.

    Source: Hesterberg on the bootstrap, The American Statistician 69 (4), 2015. The quantile of
    Student's t is Abramowitz and Stegun's expansion 26.7.5, exact to 0.3 % from 4 degrees of
    freedom.
    """
    if blocks < LEAST_BLOCKS:
        return None
    freedom, z = blocks - 1, Z_95
    student = (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
    return float(student / z * np.sqrt(blocks / freedom))


def interval(
    value: float, q: float, bounds: tuple[float, float] | None, replays: Replays, error_ratio: float
) -> Predicted:
    """Return the interval that contains the quantile q of 95 % of later windows with the same
    distribution.

    Args:
        value: the prediction.
        q: in (0, 1).
        bounds: from `rank_bounds`.
        replays: the replays of the whole traffic.
        error_ratio: relative error of the unchanged replay, which widens the interval.
    """
    if bounds is None:
        return Predicted(value)
    low, middle, high = np.sort(corrected_at(np.array([bounds[0], q, bounds[1]]), replays)).tolist()
    if min(value, low) <= 0:
        return Predicted(value, max(0.0, value + low - middle), value + high - middle)
    error = Z_95 * np.log1p(max(error_ratio, -0.9))
    down, up = np.log(middle / low), np.log(high / middle)
    if bounds[1] > 1 - 0.5 / np.isfinite(replays.then).sum():
        # The largest value is no bound. The difference between two windows of the same traffic has
        # a symmetric distribution.
        up = max(up, down)
    down, up = np.hypot(down, error), np.hypot(up, error)
    return Predicted(value, value * float(np.exp(-down)), value * float(np.exp(up)))
