"""Compute predictions from measured values and two replays (decision 079).

The prediction is measured value × edited replay / unchanged replay. The model's error cancels out
in the ratio.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from replay.arrivals import FloatArray
from telemetry.quantiles import Z_95

NEGLIGIBLE_S: Final = 1e-3
"""Below this latency in seconds, the ratio of two replays is not meaningful. The prediction is then
the measured value plus the difference of the replays."""

MIN_BLOCKS: Final = 5
"""Minimum number of blocks of time for a confidence interval. With fewer blocks, `student` has
fewer than 4 degrees of freedom and is less exact."""


class Reproduced(NamedTuple):
    """A percentile as measured, and as replayed without edits."""

    measured: float | None
    replayed: float | None

    @property
    def error_ratio(self) -> float | None:
        """The replayed value divided by the measured value, minus 1."""
        if not self.measured or self.replayed is None:
            return None
        return self.replayed / self.measured - 1


class Predicted(NamedTuple):
    """A predicted value with its 95 % confidence interval."""

    value: float | None
    low: float | None = None
    high: float | None = None


def nested(parts: Sequence[Predicted], wholes: Sequence[Predicted]) -> list[Predicted]:
    """Limit the percentiles of a latency to the percentiles of a longer latency that contains it.
    For example, TTFT is at most E2E."""
    return [
        Predicted(*(_at_most(*pair) for pair in zip(part, whole, strict=True)))
        for part, whole in zip(parts, wholes, strict=True)
    ]


def nested_latencies(
    predicted: Mapping[str, Sequence[Predicted]], all_streamed: bool
) -> dict[str, Sequence[Predicted]]:
    """Limit TTFT to E2E, and the queue time to the shortest latency that contains it.

    Args:
        all_streamed: whether all responses are streamed. Otherwise, only some of the requests have
            a TTFT, so its percentiles can exceed those of E2E.
    """
    found = dict(predicted)
    pairs = (
        (("ttft_s", "e2e_s"), ("queue_s", "ttft_s")) if all_streamed else (("queue_s", "e2e_s"),)
    )
    for part, whole in pairs:
        found[part] = nested(found[part], found[whole])
    return found


def _at_most(value: float | None, limit: float | None) -> float | None:
    return value if value is None or limit is None else min(value, limit)


def scaled(measured: FloatArray, now: FloatArray, then: FloatArray) -> FloatArray:
    """The predicted percentiles: `measured` × `then` / `now`. The results never decrease: if a
    result is smaller than the result of the next lower percentile, it is raised to that result.

    Args:
        measured: the measured percentiles in ascending order, or NaN if unknown.
        now, then: the percentiles of the unchanged replay, and of the edited replay.
    """
    small = np.minimum(measured, now) < NEGLIGIBLE_S
    by_ratio = measured * then / np.where(small, 1.0, now)
    found = np.where(small, np.maximum(0.0, measured + then - now), by_ratio)
    unknown = np.isnan(measured) | np.isnan(now)
    found = np.where(unknown, then, found)
    return np.where(np.isnan(found), np.nan, np.fmax.accumulate(found))


class RankCorrection:
    """Corrects each value of an edited replay with the error of the unchanged replay.

    The correction multiplies a value by measured value / unchanged value at the same rank. If one
    of these values is below `NEGLIGIBLE_S`, the correction adds their difference instead. A rank is
    a position in ascending order, from 0 to 1.

    Args:
        now, measured: the values of the unchanged replay, and the measured values. Unknown values
            are NaN.
    """

    def __init__(self, now: FloatArray, measured: FloatArray) -> None:
        self._now = np.sort(now[np.isfinite(now)])
        self._measured = np.sort(measured[np.isfinite(measured)])

    def corrected(self, then: FloatArray) -> FloatArray:
        """The values of the edited replay, each corrected at its rank."""
        found = then.copy()
        known = np.flatnonzero(np.isfinite(then))
        order = known[np.argsort(then[known], kind="stable")]
        found[order] = self._at(_ranks(known.size), then[order])
        return found

    def corrected_at(self, ranks: FloatArray, then: FloatArray) -> FloatArray:
        """The corrected values of the edited replay (`then`, sorted) at these ranks."""
        return self._at(ranks, values_at(ranks, then))

    def _at(self, ranks: FloatArray, then: FloatArray) -> FloatArray:
        if not self._now.size or not self._measured.size:
            return then
        now, measured = values_at(ranks, self._now), values_at(ranks, self._measured)
        small = np.minimum(now, measured) < NEGLIGIBLE_S
        by_ratio = then * measured / np.maximum(now, NEGLIGIBLE_S)
        return np.where(small, np.maximum(then + measured - now, 0.0), by_ratio)


def _ranks(number: int) -> FloatArray:
    """Return (i + ½)/n for the i-th of n sorted values."""
    return (np.arange(number) + 0.5) / number


def values_at(ranks: FloatArray, ordered: FloatArray) -> FloatArray:
    """The values of `ordered` (sorted) at these ranks, with interpolation."""
    return np.interp(ranks, _ranks(ordered.size), ordered)


class RankBounds(NamedTuple):
    """For each quantile of a later window, two ranks in the recorded window."""

    low: FloatArray
    high: FloatArray


def rank_bounds(q: FloatArray, shares: Sequence[FloatArray], blocks: int) -> RankBounds | None:
    """Return two ranks for each q.

    In 95 % of later windows, the quantile q lies between the values at these two ranks of the
    recorded window.

    Source: Woodruff, "Confidence Intervals for Medians and Other Position Measures", 1952.

    Args:
        q: (k,) in (0, 1).
        shares: one array (k,) for each resampled replay: the share of its values that do not exceed
            the quantile q of the replay of the whole traffic. NaN if the resampled replay has no
            values.

    Returns:
        The ranks, or None if there are too few draws or blocks.
    """
    widening = small_sample_factor(blocks)
    known = [each for each in shares if np.isfinite(each).all()]
    if len(known) < 2 or widening is None:
        return None
    deviations = np.std(np.arcsin(np.sqrt(known)), axis=0, ddof=1)
    off = Z_95 * widening * np.sqrt(2) * deviations
    middle = np.arcsin(np.sqrt(q))
    return RankBounds(
        np.sin(np.maximum(middle - off, 0.0)) ** 2, np.sin(np.minimum(middle + off, np.pi / 2)) ** 2
    )


def small_sample_factor(blocks: int, z: float = Z_95) -> float | None:
    """The factor that widens a normal confidence interval if there are few resampled blocks.

    Return None if there are fewer than `MIN_BLOCKS` blocks.

    The variance of n resampled blocks is (n − 1)/n times the true variance. This variance is itself
    uncertain, so Student's t replaces the normal quantile `z`.

    Source: Hesterberg on the bootstrap, The American Statistician 69 (4), 2015.
    """
    if blocks < MIN_BLOCKS:
        return None
    return float(student(blocks - 1, z) / z * np.sqrt(blocks / (blocks - 1)))


def student(freedom: int, z: float = Z_95) -> float:
    """Return the quantile of Student's t with the same probability as the normal quantile `z`.

    There must be at least 3 degrees of freedom.

    Source: Abramowitz and Stegun's expansion 26.7.5, exact to 1 % from 3 degrees of freedom and to
    0.3 % from 4, for z = 1.96.
    """
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def intervals(
    values: FloatArray,
    q: FloatArray,
    bounds: RankBounds | None,
    then: FloatArray,
    correction: RankCorrection,
    error_ratios: FloatArray,
) -> list[Predicted]:
    """Return a 95 % interval for each quantile q of later windows with the same distribution.

    Args:
        values: (k,) the predictions, or NaN if unknown.
        q: (k,) in (0, 1).
        then: the latencies of the edited replay of the whole traffic, or NaN if unknown.
        error_ratios: (k,) relative errors of the unchanged replay, which widen the intervals.
    """
    if bounds is None:
        return [Predicted(none_if_nan(each)) for each in values]
    ordered = np.sort(then[np.isfinite(then)])
    ranks = np.stack([bounds.low, q, bounds.high])
    low, middle, high = np.sort(correction.corrected_at(ranks, ordered), axis=0)
    error = Z_95 * np.log1p(np.maximum(error_ratios, -0.9))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        down, up = np.log(middle / low), np.log(high / middle)
        # Values of a later window may exceed the largest value of the recorded window, so this
        # value is no upper bound. The interval is then symmetric.
        largest = bounds.high > 1 - 0.5 / ordered.size
        up = np.where(largest, np.maximum(up, down), up)
        lows, highs = values * np.exp(-np.hypot(down, error)), values * np.exp(np.hypot(up, error))
    zero = np.minimum(values, low) <= 0
    lows = np.where(zero, np.maximum(0.0, values + low - middle), lows)
    highs = np.where(zero, values + high - middle, highs)
    return [Predicted(*map(none_if_nan, each)) for each in zip(values, lows, highs, strict=True)]


def none_if_nan(value: float) -> float | None:
    """A value as a float, or None instead of NaN."""
    return None if np.isnan(value) else float(value)
