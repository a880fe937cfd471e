"""Predicts the duration of an engine step. The model is fitted while the engine runs.

    step ≈ γ + α·P + κ·Q + β·C + δ·N + λ·L

P: prefill tokens. Q: attention work of the prefill chunks, Σ p·(start + p/2), for p tokens after
`start` earlier tokens. C: context tokens that decoding requests read. N: decoding sequences. L: 1
in a step with prefill, otherwise 0. λ: the time to launch a prefill. vLLM launches most kernels of
a prefill one by one, but launches decodes as one CUDA graph.

The fit is a non-negative relative least-squares fit with exponential forgetting, stored as normal
equations. Huber weights limit the bias of stalls (Huber, "Robust Estimation of a Location
Parameter", 1964). A step is predicted before it updates the model, so the reported error is
out-of-sample.

This module is pure. docs/ledger.md describes the limits of the model.
"""

from typing import NamedTuple

SCALES = (1.0, 1e3, 1e6, 1e5, 1e2, 1.0)
"""Typical values of 1, P, Q, C, N, L. Dividing by them keeps the equations well conditioned."""

FORGET = 1 - 1 / 4000
"""The weight of a step halves after 2,800 more steps."""

MIN_STEPS = 64

SOLVE_EVERY, SETTLED_SOLVE_EVERY = 8, 32
"""The number of steps between two solutions: in the first `SETTLED_STEPS` steps, and later."""

SETTLED_STEPS = 512
SWEEPS = 12
HUBER = 3.0
"""Residuals above this multiple of the typical residual have a lower weight."""

STALL_TYPICAL = 8.0
STALL_RATIO = 0.5
"""A stalled step exceeds the prediction by this ratio and by `STALL_TYPICAL` typical errors."""


PACE_STEP = 0.02
"""The relative change of `FittedStepModel.pace` per step. The pace rises from 1 to 2 in 35
steps."""

PACE_LIMIT = 50.0

GAIN_LIMIT = 1e12

_UP, _DOWN, _MIN = 1 + PACE_STEP, 1 / (1 + PACE_STEP), 1 / PACE_LIMIT


class StepWork(NamedTuple):
    """The amounts P, Q, C and N of the model for one step."""

    prefill_tokens: float
    prefill_attention: float
    context_tokens: float
    decodes: float


class FittedStepModel:
    """The fitted step model of one engine."""

    def __init__(self) -> None:
        self.steps = 0
        self._coefficients = [0.0] * 6  # in scaled units
        self.coefficients = _unscaled(self._coefficients)
        """(γ, α, κ, β, δ, λ) in seconds per unit."""
        self._normal = [[0.0] * 6 for _ in range(6)]  # the upper triangle
        self._moment = [0.0] * 6
        self._gain = 1.0
        """Weight of the newest step. It rises instead of all earlier weights falling."""
        self.pace = 1.0
        """Running median of measured / predicted duration, which follows a slower machine within
        tens of steps."""
        self._typical_ratio = 0.2
        self._typical_of = [0.2, 0.2]
        """The typical error of steps without prefill, and of steps with prefill. Launches vary more
        than CUDA graphs."""
        self._typical_s = 0.0
        self._weight = 0.0
        self._residual_square = self._square = self._sum = 0.0

    @property
    def ready(self) -> bool:
        """Return whether enough steps were fitted for a prediction."""
        return self.steps >= MIN_STEPS

    @property
    def error_ratio(self) -> float | None:
        """The typical absolute out-of-sample error, relative to the prediction."""
        return self._typical_ratio if self.ready else None

    @property
    def r_squared(self) -> float | None:
        """Share of the durations' variance that the predictions explain."""
        if not self._weight:
            return None
        variance = self._square - self._sum * self._sum / self._weight
        return 1 - self._residual_square / variance if variance > 0 else None

    def predict(self, work: StepWork) -> float:
        """The predicted duration of a step with this work, in seconds."""
        gamma, alpha, kappa, beta, delta, launch = self._coefficients
        p, q, c, n = work
        predicted = gamma + beta * c / 1e5 + delta * n / 1e2
        return predicted + alpha * p / 1e3 + kappa * q / 1e6 + launch if p else predicted

    def stall_of(self, duration: float, predicted: float, *, prefill: bool = False) -> float:
        """Seconds of a step's duration that are a stall. The result is 0 within the usual noise.

        If all recent steps took longer than predicted, the machine has become slower. This is not a
        stall.
        """
        expected = predicted * max(self.pace, 1.0)
        surplus = duration - expected
        noise = max(STALL_TYPICAL * self._typical_of[prefill], STALL_RATIO) * expected
        return surplus if surplus > noise else 0.0

    def learn(self, work: StepWork, duration: float) -> None:
        """Update the model with one step."""
        predicted = self.predict(work)
        huber = 1.0
        if self.ready:
            up = duration > predicted * self.pace
            self.pace = min(max(self.pace * (_UP if up else _DOWN), _MIN), PACE_LIMIT)
            residual = duration - predicted
            ratio = abs(residual) / max(predicted, 1e-9)
            # The error is relative to the pace, so that the fit can follow a slowdown of all steps.
            around = max(predicted * self.pace, 1e-9)
            stray = abs(duration - around) / around
            kind = work.prefill_tokens > 0
            typical = self._typical_of[kind]
            huber = min(1.0, HUBER * typical / stray) if stray > 0 else 1.0
            # A mean of clipped values ignores stalls, like a running median, but costs less.
            self._typical_of[kind] += 0.01 * (min(ratio, 4 * typical) - typical)
            self._typical_ratio += 0.01 * (
                min(ratio, 4 * self._typical_ratio) - self._typical_ratio
            )
            if huber == 1.0 or stray < STALL_RATIO:
                self._weight = self._weight * FORGET + 1
                self._sum = self._sum * FORGET + duration
                self._square = self._square * FORGET + duration * duration
                self._residual_square = self._residual_square * FORGET + residual * residual
        self._typical_s += (duration - self._typical_s) / min(self.steps + 1, 200)
        size = max(predicted if self.ready else duration, 0.25 * self._typical_s)
        if size > 0:
            self._accumulate(work, duration, huber / (size * size))
        self.steps += 1
        every = SOLVE_EVERY if self.steps <= SETTLED_STEPS else SETTLED_SOLVE_EVERY
        if self.steps % every == 0:
            self._solve()

    def _accumulate(self, work: StepWork, duration: float, weight: float) -> None:
        self._gain /= FORGET
        weight *= self._gain
        p, q, c, n = work
        p, q, c, n = p / 1e3, q / 1e6, c / 1e5, n / 1e2
        moment, (ones, ps, qs, cs, ns, launches) = self._moment, self._normal
        weighted_c, weighted_n = weight * c, weight * n
        ones[0] += weight
        ones[3] += weighted_c
        ones[4] += weighted_n
        cs[3] += weighted_c * c
        cs[4] += weighted_c * n
        ns[4] += weighted_n * n
        moment[0] += weight * duration
        moment[3] += weighted_c * duration
        moment[4] += weighted_n * duration
        if p:
            weighted_p, weighted_q = weight * p, weight * q
            ones[1] += weighted_p
            ones[2] += weighted_q
            ps[1] += weighted_p * p
            ps[2] += weighted_p * q
            ps[3] += weighted_p * c
            ps[4] += weighted_p * n
            qs[2] += weighted_q * q
            qs[3] += weighted_q * c
            qs[4] += weighted_q * n
            ones[5] += weight
            ps[5] += weighted_p
            qs[5] += weighted_q
            cs[5] += weighted_c
            ns[5] += weighted_n
            launches[5] += weight
            moment[1] += weighted_p * duration
            moment[2] += weighted_q * duration
            moment[5] += weight * duration
        if self._gain > GAIN_LIMIT:
            self._normal = [[value / self._gain for value in line] for line in self._normal]
            self._moment = [value / self._gain for value in moment]
            self._gain = 1.0

    def _solve(self) -> None:
        """Solve non-negative least squares by coordinate descent from the current solution."""
        upper, x = self._normal, self._coefficients
        whole = [[upper[min(i, j)][max(i, j)] for j in range(6)] for i in range(6)]
        rows = [(i, row, row[i], self._moment[i]) for i, row in enumerate(whole) if row[i] > 0]
        for _ in range(SWEEPS):
            for i, (a, b, c, d, e, f), diagonal, moment in rows:
                others = a * x[0] + b * x[1] + c * x[2] + d * x[3] + e * x[4] + f * x[5]
                others -= diagonal * x[i]
                x[i] = max(0.0, (moment - others) / diagonal)
        self.coefficients = _unscaled(x)


def _unscaled(coefficients: list[float]) -> tuple[float, float, float, float, float, float]:
    gamma, alpha, kappa, beta, delta, launch = (
        value / scale for value, scale in zip(coefficients, SCALES, strict=True)
    )
    return gamma, alpha, kappa, beta, delta, launch
