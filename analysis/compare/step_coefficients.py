"""Compute the coefficients of the step model before and after a change.

The coefficients are fitted to the increases of the totals in the engine samples, over intervals of
some seconds. Pure.

A coefficient is the busy time per unit of one kind of work. A coefficient depends little on the mix
and the load. So a different coefficient is independent evidence that the server changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot, inf
from typing import Final

import numpy as np

from analysis.compare.intervals import spread_of
from analysis.corrected_prediction import small_sample_factor
from diagnosis.inputs.servers import Samples
from replay.arrivals import BoolArray, FloatArray, IntArray
from replay.fit import MIN_STEPS, non_negative
from telemetry.quantiles import Z_95

NAMES: Final = ("gamma", "alpha", "kappa", "beta", "delta")
COEFFICIENTS: Final = len(NAMES)
"""Number of coefficients. The coefficient λ is not fitted. The additional time of steps with
prefill is part of `gamma` and `alpha`."""
MEANINGS: Final[Mapping[str, str]] = {
    "gamma": "per step",
    "alpha": "per prefill token",
    "kappa": "per attention pair",
    "beta": "per context token",
    "delta": "per decode",
}
INTERVAL_S: Final = 5
"""Length of an interval in seconds: about five samples."""
BLOCK: Final = 6
"""Number of consecutive intervals in a resampled block (30 s)."""
MIN_INTERVALS: Final = 10 * COEFFICIENTS
"""Minimum number of intervals on each side: ten for each coefficient."""
DRAWS: Final = 100
MODEL_ERROR: Final = 0.0006
"""Relative standard deviation of an error that resampling does not show. It was measured on 90
pairs of simulated windows without a change."""
_REWEIGHTS: Final = 3
_FAR: Final = 2.0
"""If an interval's deviation exceeds this many median deviations, its weight is lower, as in
`expected_latency`."""
_NS: Final = 10**9
_WORK: Final = (
    *("steps_total", "scheduled_prefill_tokens_total", "prefill_attention_total"),
    *("context_tokens_total", "decodes_total"),
)


@dataclass(frozen=True, slots=True, eq=False)
class WorkIntervals:
    """The work and the busy time of m time intervals of the engines."""

    work: FloatArray
    """(m, 5) steps, prefill tokens, attention pairs, context tokens, decodes."""
    busy_s: FloatArray
    """(m,) busy time in seconds, without stalls."""


@dataclass(frozen=True, slots=True)
class CoefficientEstimate:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The coefficients before and after the change, and how much slower the steps became."""

    before: Mapping[str, CoefficientEstimate]
    """Maps each name in `NAMES` to its coefficient in seconds."""
    after: Mapping[str, CoefficientEstimate]
    pace: CoefficientEstimate
    """The busy time after the change, divided by the time that the same work would have taken
    before the change."""


def work_intervals_of(
    samples: Samples, chosen: BoolArray, from_unix_ns: int, to_unix_ns: int
) -> WorkIntervals:
    """The intervals in which the chosen samples report steps.

    Args:
        chosen: (n,) whether a sample is from an engine that served the compared requests.
    """
    mine = chosen & (samples.at_unix_ns >= from_unix_ns) & (samples.at_unix_ns < to_unix_ns)
    if not mine.any():
        return WorkIntervals(np.empty((0, COEFFICIENTS)), np.empty(0))
    place = (samples.at_unix_ns[mine] - from_unix_ns) // (INTERVAL_S * _NS)
    series = samples.series[mine]
    _, number = np.unique(np.stack([series, place]), axis=1, return_inverse=True)
    number = number.reshape(-1)
    size = int(number.max(initial=-1)) + 1

    def risen(name: str) -> FloatArray:
        rise = samples.rises(name)[mine]
        known = np.isfinite(rise)
        total = np.bincount(number[known], rise[known], minlength=size).astype(np.float64)
        total[np.bincount(number[known], minlength=size) == 0] = np.nan
        return total

    work = np.stack([risen(name) for name in _WORK], axis=1)
    busy_s = risen("busy_s_total") - np.nan_to_num(risen("stall_s_total"))
    known = np.isfinite(work).all(axis=1) & (busy_s > 0) & (work[:, 0] > 0)
    return WorkIntervals(work[known], busy_s[known])


def coefficients_of(before: WorkIntervals, after: WorkIntervals) -> Coefficients | None:
    """The coefficients, or None if there are too few time intervals."""
    for each in (before, after):
        if each.busy_s.size < MIN_INTERVALS or each.work[:, 0].sum() < MIN_STEPS:
            return None
    chance = np.random.default_rng(0)
    fits = [_fit(each) for each in (before, after)]
    drawn = np.empty((DRAWS, 2, COEFFICIENTS))
    paces = np.empty(DRAWS)
    for number in range(DRAWS):
        sides = [_take(each, _rows(each.busy_s.size, chance)) for each in (before, after)]
        drawn[number] = [_fit(each) for each in sides]
        paces[number] = _pace(drawn[number, 0], *sides)
    sizes = [each.busy_s.size // BLOCK for each in (before, after)]
    found = [
        {
            name: _estimate(fits[side][place], drawn[:, side, place], sizes[side])
            for place, name in enumerate(NAMES)
        }
        for side in (0, 1)
    ]
    return Coefficients(
        found[0], found[1], _estimate(_pace(fits[0], before, after), paces, min(sizes))
    )


def _take(of: WorkIntervals, rows: IntArray) -> WorkIntervals:
    return WorkIntervals(of.work[rows], of.busy_s[rows])


def _rows(size: int, chance: np.random.Generator) -> IntArray:
    starts = chance.integers(0, max(size - BLOCK, 0) + 1, -(-size // BLOCK))
    rows = (starts[:, None] + np.arange(BLOCK)).ravel()[:size]
    return np.asarray(np.minimum(rows, size - 1))


def _fit(of: WorkIntervals) -> FloatArray:
    """Return non-negative coefficients, fitted with Huber's weights: (5,)."""
    scales = np.maximum(of.work.mean(axis=0), 1e-12)
    columns = of.work / scales
    weights = 1 / of.busy_s
    for _ in range(_REWEIGHTS):
        off = np.abs(of.busy_s - columns @ non_negative(columns, of.busy_s, weights))
        off /= np.sqrt(of.busy_s)
        usual = max(float(np.median(off)), 1e-9)
        weights = np.minimum(1.0, _FAR * usual / np.maximum(off, 1e-12)) / of.busy_s
    return np.asarray(non_negative(columns, of.busy_s, weights) / scales)


def _pace(coefficients: FloatArray, before: WorkIntervals, after: WorkIntervals) -> float:
    """Return (busy time / predicted time) after the change, divided by the same ratio before the
    change."""
    was, now = (
        each.busy_s.sum() / max(float((each.work @ coefficients).sum()), 1e-12)
        for each in (before, after)
    )
    return float(now / was)


def _estimate(value: float, drawn: FloatArray, blocks: int) -> CoefficientEstimate:
    error = hypot(float(spread_of(drawn)), MODEL_ERROR * value)
    half = error * Z_95 * (small_sample_factor(blocks) or inf)
    return CoefficientEstimate(float(value), max(float(value) - half, 0.0), float(value) + half)
