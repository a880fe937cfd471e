import numpy as np
import pytest

from analysis.compare.expected_latency import ExpectedLatency
from analysis.compare.least_squares import non_negative_fit
from replay.fit import non_negative


def test_the_coefficients_of_the_terms_are_found_despite_outliers() -> None:
    chance = np.random.default_rng(1)
    terms = np.stack([np.ones(2000), chance.lognormal(6, 1, 2000)], axis=1)
    values_s = terms @ np.array([0.01, 2e-5]) * chance.lognormal(0, 0.02, 2000)
    values_s[::50] += 10.0
    found = ExpectedLatency(terms, values_s).of(np.array([[1.0, 0.0], [1.0, 1000.0]]))
    assert found == pytest.approx([0.01, 0.03], rel=0.02)


def test_latencies_of_zero_are_allowed() -> None:
    terms = np.stack([np.ones(200), np.arange(200.0)], axis=1)
    found = ExpectedLatency(terms, np.zeros(200)).of(terms)
    assert (found > 0).all()
    assert found.max() < 1e-3


@pytest.mark.parametrize("seed", range(20))
def test_the_fast_solution_equals_the_iterated_one(seed: int) -> None:
    chance = np.random.default_rng(seed)
    columns = chance.lognormal(0, 0.5, (300, 4))
    columns[:, 3] = 0.0  # a kind of work that never occurred
    values = columns @ np.array([1.0, 0.5, 0.0, 0.0]) + chance.normal(0, 0.2, 300)
    weights = chance.uniform(0.5, 2.0, 300)
    fast, slow = (solve(columns, values, weights) for solve in (non_negative_fit, non_negative))

    def loss(of: np.ndarray) -> float:
        return float((weights * (values - columns @ of) ** 2).sum())

    assert (fast >= 0).all()
    assert loss(fast) <= loss(slow) * (1 + 1e-6)
