"""Long requests that were added, and requests that became longer."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.evidence.added_requests import LEAST_REQUESTS, longer_than, were_added
from diagnosis.inputs.requests import FloatArray


def lengths(number: int, seed: int, factor: float = 1.0) -> FloatArray:
    return (np.random.default_rng(seed).lognormal(5.0, 0.8, number) * factor).round() + 1


@given(
    seed=st.integers(0, 50),
    number=st.integers(300, 2000),
    share=st.floats(0.3, 2.0),
    scale=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_added_long_requests_are_found_with_their_length(
    seed: int, number: int, share: float, scale: float
) -> None:
    before = lengths(number, seed)
    added = np.full(round(share * number * scale), 5_000.0)
    now = np.concatenate([lengths(round(number * scale), seed + 100), added])
    assert were_added(now, before, scale)
    bound = longer_than(now, before, scale)
    assert (now[now > bound] == 5_000).mean() > 0.5
    assert bound < 5_000


@given(seed=st.integers(0, 50), number=st.integers(200, 2000), factor=st.floats(1.5, 4.0))
def test_longer_requests_are_not_added_ones(seed: int, number: int, factor: float) -> None:
    assert not were_added(lengths(number, seed + 100, factor), lengths(number, seed), 1.0)


@pytest.mark.parametrize("rate", [1.0, 1.5, 5.0])
def test_a_higher_rate_adds_no_long_requests(rate: float) -> None:
    found = [
        longer_than(lengths(round(800 * rate), seed + 100), lengths(800, seed), 1.0)
        for seed in range(100)
    ]
    assert sum(bound < inf for bound in found) <= 5


def test_too_few_requests_are_not_compared() -> None:
    assert not were_added(lengths(LEAST_REQUESTS - 1, 1), lengths(500, 2), 1.0)
