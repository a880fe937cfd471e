from math import exp, lgamma, log

import numpy as np
import pytest

from telemetry.proportions import wilson


def _coverage(trials: int, share: float) -> float:
    """Return the probability that a sample's interval contains the true proportion."""
    found = 0.0
    for hits in range(trials + 1):
        low, high = wilson(hits, trials) or (0.0, 0.0)
        if low <= share <= high:
            ways = lgamma(trials + 1) - lgamma(hits + 1) - lgamma(trials - hits + 1)
            found += exp(ways + hits * log(share) + (trials - hits) * log(1 - share))
    return found


@pytest.mark.parametrize(("trials", "least"), [(10, 0.89), (20, 0.91), (100, 0.927), (500, 0.939)])
def test_the_coverage_is_that_of_the_docstring(trials: int, least: float) -> None:
    """The coverage is computed exactly, for proportions that were not used to choose the limits."""
    shares = np.random.default_rng(7).uniform(0, 1, 150)
    coverage = np.array([_coverage(trials, share) for share in shares])
    assert coverage.mean() == pytest.approx(0.95, abs=0.006)
    assert coverage[(shares >= 0.05) & (shares <= 0.95)].min() >= least


def test_no_hit_and_only_hits_have_an_interval() -> None:
    assert wilson(0, 0) is None
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


@pytest.mark.parametrize(("hits", "trials"), [(-1, 3), (4, 3)])
def test_impossible_counts_are_an_error(hits: int, trials: int) -> None:
    with pytest.raises(ValueError, match=f"{hits} successes of {trials} trials"):
        wilson(hits, trials)
