"""The latency that the server before the change is expected to need for a request.

Pure. The expected latency is a sum of non-negative terms, one for each kind of work, like the
duration of an engine step. Its coefficients are fitted to the requests before the change. As a
single number, it makes requests of different sizes and under different load comparable.

Source: Hansen, "The prognostic analogue of the propensity score", Biometrika 2008.
"""

from typing import Final

import numpy as np

from analysis.compare.least_squares import non_negative_fit
from replay.arrivals import FloatArray

_ROUNDS: Final = 6
"""Reweightings of the fit. The coefficients change by less than 1 % after four."""
_LEAST: Final = 1e-6
"""The smallest expected latency, in seconds. Some queueing times are 0."""


class ExpectedLatency:
    """A fitted sum of terms.

    Args:
        terms: (n, k) the amount of each kind of work, for each request before the change.
        values_s: (n,) the measured latencies.
        weights: (n,) weights of an earlier fit to the same requests, or None. With weights, the fit
            takes one round, as a resampled fit needs.
    """

    def __init__(
        self, terms: FloatArray, values_s: FloatArray, weights: FloatArray | None = None
    ) -> None:
        self._scales = np.maximum(terms.mean(axis=0), 1e-12)
        columns = terms / self._scales
        if weights is not None:
            self.weights = weights
            self._coefficients = non_negative_fit(columns, values_s, weights)
            return
        # Relative errors, with large ones weighted down: iterated weights minimise their absolute
        # values, so that a few requests that a stall delayed do not change the fit.
        middle = max(float(np.median(values_s)), _LEAST)
        size = np.maximum(values_s, middle * 0.1)
        self.weights = 1 / size**2
        for _ in range(_ROUNDS):
            self._coefficients = non_negative_fit(columns, values_s, self.weights)
            expected = np.maximum(columns @ self._coefficients, middle * 0.1)
            off = np.abs(values_s - columns @ self._coefficients) / expected
            usual = max(float(np.median(off)), 1e-9)
            self.weights = 1 / (expected**2 * np.maximum(off, usual * 0.5))

    def of(self, terms: FloatArray) -> FloatArray:
        """Return the expected latencies in seconds.

        Args:
            terms: (m, k) the amount of each kind of work.
        """
        return np.maximum(terms / self._scales @ self._coefficients, _LEAST)
