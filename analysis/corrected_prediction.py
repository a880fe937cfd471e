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


def scaled(measured: FloatArray, now: FloatArray, then: FloatArray) -> FloatArray:
    """Return the measured values times the ratios of the replayed values `then` and `now`.

    Args:
        measured: the measured percentiles; NaN if unknown.
        now: the same percentiles of the unchanged replay.
        then: the same percentiles of the edited replay.
    """
    small = np.minimum(measured, now) < NEGLIGIBLE_S
    by_ratio = measured * then / np.where(small, 1.0, now)
    found = np.where(small, np.maximum(0.0, measured + then - now), by_ratio)
    unknown = np.isnan(measured) | np.isnan(now)
    return np.where(unknown, then, found)


class RankCorrection:
    """Corrects replayed values by the error of the unchanged replay at their ranks.

    Args:
        now: the values of the unchanged replay; NaN if unknown.
        measured: the measured values; NaN if unknown.
    """

    def __init__(self, now: FloatArray, measured: FloatArray) -> None:
        self._now = np.sort(now[np.isfinite(now)])
        self._measured = np.sort(measured[np.isfinite(measured)])

    def corrected(self, then: FloatArray) -> FloatArray:
        """Return the values of the edited replay, each corrected at its rank."""
        found = then.copy()
        known = np.flatnonzero(np.isfinite(then))
        if not known.size or not self._now.size or not self._measured.size:
            return found
        # At the ranks of the sorted values, both arguments of the interpolation ascend.
        order = known[np.argsort(then[known], kind="stable")]
        ordered = then[order]
        ranks = (np.arange(known.size) + 0.5) / known.size
        now, measured = (
            np.interp(ranks, (np.arange(each.size) + 0.5) / each.size, each)
            for each in (self._now, self._measured)
        )
        small = np.minimum(now, measured) < NEGLIGIBLE_S
        by_ratio = ordered * measured / np.maximum(now, NEGLIGIBLE_S)
        found[order] = np.where(small, np.maximum(ordered + measured - now, 0.0), by_ratio)
        return found


def interval(value: float, draws: Sequence[float], error_ratio: float) -> Predicted:
    """Return the interval that contains 95 % of later windows with the same distribution.

    The interval is computed on a log scale. The variance of the draws counts twice, because the
    recorded window and a later window are two samples of the traffic. The error of the unchanged
    replay is added.

    Args:
        value: the prediction.
        draws: the same prediction for resampled traffic, or an empty list for no interval.
        error_ratio: relative error of the unchanged replay.
    """
    if not draws:
        return Predicted(value)
    positive = [each for each in draws if each > 0]
    if value <= 0 or len(positive) < 2:
        ordered = sorted([*draws, value])
        return Predicted(value, ordered[0], ordered[-1])
    sampled = np.sqrt(2) * np.std(np.log(positive), ddof=1)
    spread = float(np.hypot(sampled, np.log1p(max(error_ratio, -0.9))))
    factor = float(np.exp(Z_95 * spread))
    return Predicted(value, value / factor, value * factor)
