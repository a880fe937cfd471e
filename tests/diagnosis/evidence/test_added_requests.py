"""Long requests that were added, compared with requests that became longer."""

from math import inf

import numpy as np
import pytest

from diagnosis.evidence.added_requests import LEAST_REQUESTS, longer_than, were_added
from diagnosis.inputs.requests import FloatArray


def lengths(number: int, seed: int, factor: float = 1.0) -> FloatArray:
    return (np.random.default_rng(seed).lognormal(5.0, 0.8, number) * factor).round() + 1


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("share", [0.3, 1.0, 2.0])
def test_added_long_requests_are_found_with_their_length(share: float, scale: float) -> None:
    """By chance, one of 100 samples with the same lengths looks different."""
    found = 0
    for seed in range(50):
        before = lengths(800, seed)
        usual = lengths(round(800 * scale), seed + 100)
        now = np.concatenate([usual, np.full(round(share * 800 * scale), 5_000.0)])
        bound = longer_than(now, before, scale)
        found += were_added(now, before, scale) and bound < 5_000
        assert (now[now > bound] == 5_000).mean() > 0.5
    assert found >= 46


@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0])
def test_longer_requests_are_not_added_ones(factor: float) -> None:
    for seed in range(50):
        assert not were_added(lengths(800, seed + 100, factor), lengths(800, seed), 1.0)


@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_longer_requests_at_a_higher_rate_are_not_added_ones(factor: float) -> None:
    """The number of short requests decreases, also at a higher rate."""
    found = [
        were_added(lengths(1_200, seed + 100, factor), lengths(800, seed), 1.0)
        for seed in range(50)
    ]
    assert sum(found) <= 5


@pytest.mark.parametrize("rate", [1.0, 1.5, 5.0])
def test_a_higher_rate_adds_no_long_requests(rate: float) -> None:
    found = [
        longer_than(lengths(round(800 * rate), seed + 100), lengths(800, seed), 1.0)
        for seed in range(100)
    ]
    assert sum(bound < inf for bound in found) <= 5


def test_too_few_requests_are_not_compared() -> None:
    assert not were_added(lengths(LEAST_REQUESTS - 1, 1), lengths(500, 2), 1.0)
