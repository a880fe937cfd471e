"""The expected latency of a request on the server before the change. Pure.

The expected latency is a sum of non-negative terms, one for each kind of work. It is fitted to the
requests before the change.

Source: Hansen, "The prognostic analogue of the propensity score", Biometrika 2008.
"""

from typing import Final

import numpy as np

from replay.arrivals import FloatArray
from replay.fit import non_negative

_ROUNDS: Final = 4
"""Number of fits. After each fit, the requests get new weights. After three repetitions, the
coefficients change by less than 1 %."""
_FAR: Final = 2.0
"""If a request's deviation exceeds this many median deviations, its weight is lower. For normal
noise, 2 medians are 1.35 standard deviations, the usual choice (Huber, Robust Statistics, 1981)."""
_MIN_S: Final = 1e-6
"""The smallest expected latency, in seconds. Some queueing times are 0."""


class ExpectedLatency:
    """A sum of terms that is fitted to the measured latencies.

    The fit minimises relative errors. Large errors have a lower weight. So a stall of a few
    requests changes the fit little.

    Args:
        terms: (n, k) the amount of each kind of work for each request before the change.
        values_s: (n,) the measured latencies.
    """

    def __init__(self, terms: FloatArray, values_s: FloatArray) -> None:
        self._scales = np.maximum(terms.mean(axis=0), 1e-12)
        columns = terms / self._scales
        least = max(float(np.median(values_s)), _MIN_S) * 0.1
        weights = 1 / np.maximum(values_s, least) ** 2
        for _ in range(_ROUNDS):
            self._coefficients = non_negative(columns, values_s, weights)
            fitted = columns @ self._coefficients
            expected = np.maximum(fitted, least)
            off = np.abs(values_s - fitted) / expected
            usual = max(float(np.median(off)), 1e-9)
            weights = np.minimum(1.0, _FAR * usual / np.maximum(off, 1e-12)) / expected**2

    def of(self, terms: FloatArray) -> FloatArray:
        """The expected latencies of m requests, in seconds: (m,). `terms` has the amount of each
        kind of work: (m, k)."""
        return np.asarray(np.maximum(terms / self._scales @ self._coefficients, _MIN_S))
