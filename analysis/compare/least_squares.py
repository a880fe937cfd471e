"""Weighted least squares without negative coefficients, fast enough for resampled fits."""

import numpy as np

from replay.arrivals import FloatArray
from replay.fit import non_negative


def non_negative_fit(columns: FloatArray, values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weighted least-squares solution without negative coefficients.

    If the unconstrained solution has no negative coefficient, it is the result. Otherwise
    `replay.fit.non_negative` iterates to it, which takes a hundred times as long.

    Args:
        columns: (n, k) with scales of about 1.
        values: (n,)
        weights: (n,) weights of the squared errors.
    """
    normal = (columns * weights[:, None]).T @ columns
    used = np.diag(normal) > 1e-9 * np.diag(normal).max(initial=0.0)
    moment = (columns * weights[:, None]).T @ values
    while used.any():
        try:
            found = np.linalg.solve(normal[np.ix_(used, used)], moment[used])
        except np.linalg.LinAlgError:
            break
        if (found >= 0).all():
            solution = np.zeros(used.size)
            solution[used] = found
            slope = moment - normal @ solution
            # Without a coefficient at zero that should be positive, this is the optimum.
            if (slope <= 1e-6 * np.abs(moment).max()).all():
                return solution
            break
        used[np.flatnonzero(used)[found < 0]] = False
    return non_negative(columns, values, weights)
