"""Fits of the step model to recorded steps, and their errors on other steps.

Pure. A step's duration is γ + α·P + κ·Q + β·C + δ·N + λ·L. P: prefill tokens. Q: attention pairs.
C: context tokens. N: decodes. L: 1 in a step with prefill (docs/ledger.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from replay.arrivals import BoolArray, FloatArray, IntArray
from replay.fit import FitError, StepReports, fit_steps

PAIRS = 2
"""Column of the attention pairs, whose coefficient is κ."""
KEPT = 0.75
"""Share of the one-second samples that the robust fit uses.

Rousseeuw and Van Driessen recommend this value (Technometrics 1999, "A Fast Algorithm for the
Minimum Covariance Determinant Estimator").
"""
ROUNDS = 20
PACE_S = 5


@dataclass(frozen=True, eq=False)
class SingleSteps:
    """The n engine steps of a recording."""

    ended_s: FloatArray
    """(n,) end times in seconds."""
    worked_s: FloatArray
    """(n,) duration of each step in seconds, without stalls."""
    work: FloatArray
    """(n, 6) for each step: the number 1, prefill tokens, attention pairs, context tokens,
    decodes, and 1 in a step with prefill."""

    def select(self, chosen: BoolArray) -> "SingleSteps":
        """Return the steps for which `chosen` is true."""
        return SingleSteps(self.ended_s[chosen], self.worked_s[chosen], self.work[chosen])

    @property
    def second(self) -> IntArray:
        """(n,) for each step, the index of the second in which it ended. Seconds without steps have
        no index."""
        return np.unique(np.floor(self.ended_s), return_inverse=True)[1]


@dataclass(frozen=True)
class Errors:
    """Errors of a fit, measured on steps that the fit did not use."""

    busy: float
    """The sum of the absolute errors of each second's busy time, divided by the total busy time."""
    paced: float
    """The same error as in the field `busy`, but with scaled durations: in each `PACE_S` seconds,
    the sum of the modelled durations equals the measured busy time. Predictions use the same
    scaling."""
    step: float
    """Median absolute relative error of a single step."""
    r_squared: float
    """R²: the share of the variance of the step durations that the fit explains."""


def all_fits(reports: StepReports, steps: SingleSteps) -> Mapping[str, FloatArray]:
    """Return the six coefficients that each method of fitting finds, by the method's name.

    Raises:
        FitError: there are too few samples.
    """
    reported = _reported(reports)
    modelled_s = np.maximum(steps.work @ reported, 1e-9)
    plain = normal_equations(steps, np.ones(len(steps.worked_s)))
    without = normal_equations(steps, np.ones(len(steps.worked_s)), without=PAIRS)
    return {
        "as reported": reported,
        "seconds": _of_seconds(reports),
        "steps": plain,
        "steps, worst seconds dropped": _scaled(_trimmed(steps), steps),
        "steps, relative errors": _scaled(normal_equations(steps, modelled_s**-2), steps),
        "steps, without κ": without,
    }


def errors(coefficients: FloatArray, steps: SingleSteps) -> Errors:
    """Return the errors of the step durations that these six coefficients predict."""
    modelled_s = steps.work @ coefficients
    off_s = modelled_s - steps.worked_s
    stretch = np.unique(np.floor(steps.ended_s / PACE_S), return_inverse=True)[1]
    pace = np.bincount(stretch, steps.worked_s) / np.bincount(stretch, modelled_s)
    paced_s = modelled_s * pace[stretch] - steps.worked_s
    known = steps.worked_s > 0
    squares = float(np.sum((steps.worked_s - steps.worked_s.mean()) ** 2))
    busy, at_pace = (
        float(np.abs(np.bincount(steps.second, each)).sum() / steps.worked_s.sum())
        for each in (off_s, paced_s)
    )
    return Errors(
        busy,
        at_pace,
        float(np.median(np.abs(off_s[known]) / steps.worked_s[known])),
        1 - float(np.sum(off_s**2)) / squares,
    )


def normal_equations(
    steps: SingleSteps, weights: FloatArray, without: int | None = None
) -> FloatArray:
    """Return the least-squares fit to single steps, without negative coefficients.

    Args:
        weights: (n,) the weight of each step.
        without: the column whose coefficient is 0, or None.
    """
    weighted = steps.work * weights[:, None]
    return solved(weighted.T @ steps.work, weighted.T @ steps.worked_s, without)


def solved(normal: FloatArray, moment: FloatArray, without: int | None = None) -> FloatArray:
    """Return the x ≥ 0 that minimises xᵀ·normal·x − 2·moment·x.

    The solution is exact, because the function tries each subset of coefficients and sets all other
    coefficients to 0.

    Args:
        normal: (k, k), XᵀX for k coefficients.
        moment: (k,), Xᵀy.
    """
    size = np.sqrt(np.maximum(np.diag(normal), 1e-300))
    scaled, target = normal / np.outer(size, size), moment / size
    free = [each for each in range(len(moment)) if each != without]
    best, least = np.zeros(len(moment)), 0.0
    for number in range(1, len(free) + 1):
        for chosen in combinations(free, number):
            places = list(chosen)
            found = np.linalg.lstsq(scaled[np.ix_(places, places)], target[places])[0]
            cost = -float(found @ target[places])
            if (found >= 0).all() and cost < least:
                best, least = np.zeros(len(moment)), cost
                best[places] = found
    return best / size


def _reported(reports: StepReports) -> FloatArray:
    model = fit_steps(reports).model
    return np.array(
        [
            model.base_s,
            model.prefill_token_s,
            model.prefill_pair_s,
            model.context_token_s,
            model.sequence_s,
            model.prefill_step_s,
        ]
    )


def _of_seconds(reports: StepReports) -> FloatArray:
    """Fit the busy time between two samples to the work between them, and return the
    coefficients."""
    known = np.isfinite(reports.work).all(axis=1) & np.isfinite(reports.busy_s)
    if not known.any():
        raise FitError("no samples")
    work = reports.work[known]
    worked_s = reports.busy_s[known] - np.nan_to_num(reports.stall_s[known])
    return solved(work.T @ work, work.T @ worked_s)


def _trimmed(steps: SingleSteps) -> FloatArray:
    """Return the coefficients of a fit that uses only the seconds with the smallest errors (least
    trimmed squares)."""
    second = steps.second
    total = np.bincount(second, steps.worked_s**2)
    kept = np.ones(total.size, dtype=bool)
    found = np.zeros(steps.work.shape[1])
    for _ in range(ROUNDS):
        chosen = steps.select(kept[second])
        found = normal_equations(chosen, np.ones(len(chosen.worked_s)))
        off = np.bincount(second, (steps.worked_s - steps.work @ found) ** 2) / total
        best = off <= np.quantile(off, KEPT)
        if (best == kept).all():
            break
        kept = best
    return found


def _scaled(coefficients: FloatArray, steps: SingleSteps) -> FloatArray:
    scale: float = steps.worked_s.sum() / (steps.work @ coefficients).sum()
    return coefficients * scale
