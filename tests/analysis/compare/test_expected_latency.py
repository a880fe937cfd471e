import numpy as np
import pytest

from analysis.compare.expected_latency import ExpectedLatency


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
