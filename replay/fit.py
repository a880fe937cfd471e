"""Fit the replay's model of a server to the samples and requests that the server reported.

Pure. Each engine sample contains the coefficients of the step model that the plugin has fitted. The
step model of a time window uses the medians of these coefficients, all multiplied by one factor.
With this factor, the model predicts the window's total busy time exactly. The window is divided
into intervals of equal length. Each interval has a pace: its busy time divided by the predicted
busy time. The engine also reports the typical error of its step model for a single step. The random
deviations of single steps are computed from this error.
"""

from dataclasses import dataclass, replace
from math import ceil, erf, sqrt
from typing import Final

import numpy as np

from replay.arrivals import FloatArray
from replay.conditions import Pace, Stall
from replay.front_end import FrontEndModel
from replay.step_model import StepModel

COEFFICIENTS: Final = 6
"""Number of coefficients: γ per step, α per prefill token, κ per attention pair, β per context
token, δ per decode, λ per step with prefill."""
MIN_STEPS: Final = 20
"""Minimum number of steps in an interval whose pace is computed. The prediction for a single step
is usually wrong by 10 to 40 %, so the mean of this many steps is wrong by 2 to 9 %."""
NOISE_QUANTILES: Final = 64

_MEAN_OF_NORMAL: Final = sqrt(2 / np.pi)
"""Mean absolute deviation of a normal distribution, in standard deviations."""


class FitError(ValueError):
    """There are too few reports for a fit. The message contains the reason."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepReports:
    """One engine's reports on its steps, in m intervals of equal length.

    Work and seconds are increases of counters within an interval. The value NaN means that an
    interval has no sample.
    """

    starts_s: FloatArray
    """(m,) start of each interval."""
    work: FloatArray
    """(m, 6) six numbers for each interval: steps, prefill tokens, attention pairs, context tokens,
    decodes, steps with prefill."""
    busy_s: FloatArray
    stall_s: FloatArray
    coefficients: FloatArray
    """(m, 6) for each interval, the six coefficients of the engine's own fit."""
    error_ratio: FloatArray
    """(m,) for each interval, the typical relative error with which the engine's own fit predicts a
    single step."""


@dataclass(frozen=True, slots=True)
class StepFit:
    """The step model of a window, and how the durations of the window's steps deviate from the
    model."""

    model: StepModel
    noise: tuple[float, ...]
    """Quantiles of the ratio measured / predicted duration of a step. The mean ratio is 1."""
    paces: tuple[Pace, ...]
    steps: int


def fit_steps(reports: StepReports) -> StepFit:
    """Fit the step model of one engine.

    Raises:
        FitError: the engine reported no step model, or took too few steps.
    """
    known = np.isfinite(reports.coefficients).all(axis=1)
    if not known.any():
        raise FitError("the engine has not reported a step model")
    coefficients = np.median(reports.coefficients[known], axis=0)
    counted = np.isfinite(reports.work).all(axis=1) & np.isfinite(reports.busy_s)
    stalled_s = np.nan_to_num(reports.stall_s)
    worked_s = np.maximum(reports.busy_s - stalled_s, 0.0)
    modelled_s = reports.work @ coefficients
    steps = float(reports.work[counted, 0].sum())
    if steps < MIN_STEPS or not modelled_s[counted].sum() > 0:
        raise FitError(f"{steps:.0f} steps; allowed: at least {MIN_STEPS}")
    whole = float(worked_s[counted].sum() / modelled_s[counted].sum())
    own = counted & (reports.work[:, 0] >= MIN_STEPS) & (modelled_s > 0)
    factors = np.ones(len(worked_s))
    factors[own] = worked_s[own] / modelled_s[own] / whole
    errors = reports.error_ratio[np.isfinite(reports.error_ratio)]
    error = float(np.median(errors)) if errors.size else 0.0
    gamma, alpha, kappa, beta, delta, launch = (float(each) * whole for each in coefficients)
    return StepFit(
        StepModel(
            base_s=gamma,
            prefill_token_s=alpha,
            prefill_pair_s=kappa,
            context_token_s=beta,
            sequence_s=delta,
            prefill_step_s=launch,
        ),
        lognormal_quantiles(error / _MEAN_OF_NORMAL),
        tuple(
            Pace(float(start_s), float(factor))
            for start_s, factor in zip(reports.starts_s, factors, strict=True)
            if factor > 0
        ),
        int(steps),
    )


def stalls_of(at_s: FloatArray, stall_s: FloatArray, longest_s: FloatArray) -> tuple[Stall, ...]:
    """Return stalls whose total between two consecutive samples equals the reported stall time.

    Between two samples, there are as few stalls as possible. All these stalls are equally long and
    evenly spread, and none is longer than the longest step.

    Args:
        at_s: (n,) the time of each sample, ascending.
        stall_s: (n,) seconds of stalls since the previous sample, or NaN if unknown.
        longest_s: (n,) duration of the longest step since the previous sample, or NaN if unknown.
    """
    found = []
    before_s = np.concatenate([at_s[:1] - 1.0, at_s[:-1]])
    for end_s, start_s, total_s, max_s in zip(at_s, before_s, stall_s, longest_s, strict=True):
        if not total_s > 0:
            continue
        number = max(1, ceil(total_s / max_s)) if max_s > 0 else 1
        apart_s = (end_s - start_s) / number
        found += [
            Stall(float(start_s + apart_s * place), float(total_s / number), in_full=True)
            for place in range(number)
        ]
    return tuple(found)


def lognormal_quantiles(spread: float) -> tuple[float, ...]:
    """Return the n = `NOISE_QUANTILES` quantiles of a lognormal factor with mean 1, at the
    probabilities (i + ½)/n. `spread` is the standard deviation of the factor's logarithm."""
    places = (np.arange(NOISE_QUANTILES) + 0.5) / NOISE_QUANTILES
    factors = np.exp(spread * np.array([_normal_quantile(place) for place in places]))
    return tuple((factors / factors.mean()).tolist())


def _normal_quantile(probability: float) -> float:
    low, high = -9.0, 9.0
    for _ in range(60):
        middle = (low + high) / 2
        if (1 + erf(middle / sqrt(2))) / 2 < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EdgeReports:
    """The durations of each request outside the engine. A value is NaN if it is unknown."""

    received_s: FloatArray
    """(n,) time of receipt."""
    first_token_s: FloatArray
    """(n,) seconds from receipt to the first token."""
    last_token_s: FloatArray
    """(n,) seconds from receipt to the last token."""
    frontend_s: FloatArray
    """(n,) seconds from receipt until the front end passed the request to the engine."""
    first_byte_s: FloatArray
    """(n,) seconds from the first token to the first byte."""
    delivery_s: FloatArray
    """(n,) seconds from the last token to the last byte."""
    prompt_tokens: FloatArray
    running: FloatArray
    """(n,) number of requests in the batch when the request was received."""


def fit_front_end(reports: EdgeReports) -> FrontEndModel:
    """Fit the API server's durations: a constant, and seconds per prompt token and per running
    request.

    The process handles one request at a time, so a measured duration can contain waiting for
    earlier requests. To remove the waiting, the fit computes when the work began. Work on a request
    begins after the process receives it. Work on a token begins after the engine has produced it.
    If the process passed another request to the engine in the meantime, the work began only after
    this request.
    """
    passed_s = np.sort(_finite(reports.received_s + reports.frontend_s))

    def without_waiting(from_s: FloatArray, seconds: FloatArray) -> FloatArray:
        """Return the seconds without the time that the process spent on earlier requests."""
        ended_s = from_s + seconds
        place = np.searchsorted(passed_s, ended_s, "left") - 1
        free_s = np.where(place >= 0, passed_s[np.maximum(place, 0)], -np.inf)
        return np.asarray(ended_s - np.maximum(from_s, free_s))

    received_s, running = reports.received_s, reports.running
    if passed_s.size:
        reports = replace(
            reports,
            frontend_s=without_waiting(received_s, reports.frontend_s),
            first_byte_s=without_waiting(received_s + reports.first_token_s, reports.first_byte_s),
            delivery_s=without_waiting(received_s + reports.last_token_s, reports.delivery_s),
        )
    template_s, prompt_token_s, running_s = _non_negative_fit(
        reports.frontend_s, reports.prompt_tokens, running
    )
    first_byte_s, first_byte_sequence_s = _non_negative_fit(reports.first_byte_s, running)
    flush_s, flush_sequence_s = _non_negative_fit(reports.delivery_s, running)
    return FrontEndModel(
        read_s=0.0,
        template_s=template_s,
        prompt_token_s=prompt_token_s,
        running_s=running_s,
        first_byte_s=first_byte_s,
        first_byte_sequence_s=first_byte_sequence_s,
        flush_s=flush_s,
        flush_sequence_s=flush_sequence_s,
    )


def _finite(values: FloatArray) -> FloatArray:
    return values[np.isfinite(values)]


def _non_negative_fit(values_s: FloatArray, *by: FloatArray) -> list[float]:
    """Fit a linear function of the arrays in `by`. Return the function's constant and a slope for
    each array. None of these coefficients is negative.

    The fit minimises absolute deviations by iterated weights, so that a few slow clients have
    little effect.
    """
    columns = np.stack([np.ones(len(values_s)), *by], axis=1)
    known = np.isfinite(values_s) & np.isfinite(columns).all(axis=1)
    if not known.any():
        return [0.0] * columns.shape[1]
    values_s, columns = values_s[known], columns[known]
    scales = np.maximum(columns.mean(axis=0), 1e-12)
    columns = columns / scales
    weights = np.ones(len(values_s))
    solution = np.zeros(columns.shape[1])
    for _ in range(_REWEIGHTS):
        solution = non_negative(columns, values_s, weights)
        off_s = np.abs(values_s - columns @ solution)
        weights = 1 / np.maximum(off_s, max(float(np.median(off_s)), 1e-9) * 0.1)
    return [float(each) for each in solution / scales]


_REWEIGHTS: Final = 20
_SWEEPS: Final = 200


def non_negative(columns: FloatArray, values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weighted least-squares solution without negative coefficients.

    Negative coefficients of the unconstrained solution are set to zero. If the result is not the
    optimum, the optimum is found by iteration, which takes a hundred times as long.

    Args:
        columns: (n, k) the n values of k regressors, each scaled to about 1.
        values: (n,) values to fit.
    """
    normal = (columns * weights[:, None]).T @ columns
    moment = (columns * weights[:, None]).T @ values
    found = _solved(normal, moment)
    return by_coordinates(normal, moment) if found is None else found


def _solved(normal: FloatArray, moment: FloatArray) -> FloatArray | None:
    used = np.diag(normal) > 1e-9 * np.diag(normal).max(initial=0.0)
    while used.any():
        try:
            found = np.linalg.solve(normal[np.ix_(used, used)], moment[used])
        except np.linalg.LinAlgError:
            return None
        if (found >= 0).all():
            solution = np.zeros(used.size)
            solution[used] = found
            slope = moment - normal @ solution
            # The solution is optimal if raising a coefficient that is 0 would not reduce the error.
            return solution if (slope <= 1e-6 * np.abs(moment).max()).all() else None
        used[np.flatnonzero(used)[found < 0]] = False
    return None


def by_coordinates(normal: FloatArray, moment: FloatArray) -> FloatArray:
    """Solve the normal equations without negative coefficients, by repeated passes over the
    coefficients."""
    solution = np.zeros(moment.size)
    for _ in range(_SWEEPS):
        for i in range(len(solution)):
            if normal[i, i] > 0:
                others = normal[i] @ solution - normal[i, i] * solution[i]
                solution[i] = max(0.0, (moment[i] - others) / normal[i, i])
    return solution
