import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.token_lengths import ANSWERS, PROMPTS, Lengths


@pytest.mark.parametrize(
    ("lengths", "given_quantiles"),
    [
        (PROMPTS, {0.1: 207, 0.5: 1020, 0.9: 2734, 0.99: 4142}),
        (ANSWERS, {0.1: 54, 0.5: 129, 0.9: 424, 0.99: 601}),
    ],
)
def test_the_given_quantiles_are_met(lengths: Lengths, given_quantiles: dict[float, int]) -> None:
    chance = random.Random(7)
    draws = sorted(lengths.draw(chance) for _ in range(20_000))
    for q, length in given_quantiles.items():
        assert lengths.quantile(q) == length
        assert draws[int(q * len(draws))] == pytest.approx(length, rel=0.06)


@given(st.floats(1e-6, 1 - 1e-6), st.floats(1e-6, 1 - 1e-6))
def test_a_higher_quantile_is_no_shorter(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 1 <= PROMPTS.quantile(low) <= PROMPTS.quantile(high) <= 8192


@pytest.mark.parametrize("quantiles", [{}, {0.5: 10}, {0.1: 20, 0.5: 10}, {0.1: 0, 0.5: 10}])
def test_invalid_quantiles_are_refused(quantiles: dict[float, float]) -> None:
    with pytest.raises(ValueError, match=r"quantiles: .*allowed: two or more"):
        Lengths(quantiles, longest=100)
