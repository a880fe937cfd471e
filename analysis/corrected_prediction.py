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
    of_now, of_measured = (
        np.interp(ranks, (np.arange(each.size) + 0.5) / each.size, each) for each in (now, measured)
    )
    small = np.minimum(of_now, of_measured) < NEGLIGIBLE_S
    by_ratio = then[known] * of_measured / np.maximum(of_now, NEGLIGIBLE_S)
    found[known] = np.where(small, np.maximum(then[known] + of_measured - of_now, 0.0), by_ratio)
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
