from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.quantiles import FloatArray, interval_ranks, least_number, quantile, rank_interval

SECONDS = st.lists(st.floats(0, 1e6), min_size=1, max_size=300).map(np.array)
SHARES = st.sampled_from([0.01, 0.07, 0.5, 0.9, 0.95, 0.99, 0.999])


def first(n: int) -> FloatArray:
    return np.arange(1, n + 1, dtype=np.float64)


@pytest.mark.parametrize(
    ("n", "q", "rank"),
    [(100, 0.99, 99), (100, 0.5, 50), (101, 0.5, 51), (100, 0.07, 7), (1, 0.99, 1), (3, 0.01, 1)],
)
def test_the_quantile_is_the_value_at_the_nearest_rank(n: int, q: float, rank: int) -> None:
    """The rank is ⌈n·q⌉ in decimals: 7 for 100 · 0.07, although binary 100 · 0.07 exceeds 7."""
    assert quantile(first(n), q) == rank


@given(SECONDS, SHARES)
def test_a_quantile_splits_the_sample_at_its_share(values: FloatArray, q: float) -> None:
    found = quantile(values, q)
    assert found is not None
    assert found in values
    assert quantile(values[::-1].copy(), q) == found
    assert np.count_nonzero(values <= found) >= round(q * values.size, 9)
    assert np.count_nonzero(values < found) < round(q * values.size, 9)


@given(SECONDS, SHARES, st.sampled_from([1.0, 1.96, 2.58]))
def test_the_interval_widens_with_z(values: FloatArray, q: float, z: float) -> None:
    found, narrow, wide = quantile(values, q), rank_interval(values, q, z), None
    if narrow is not None:
        assert found is not None
        assert narrow[0] <= found <= narrow[1]
        wide = rank_interval(values, q, z + 1)
    if narrow is not None and wide is not None:
        assert wide[0] <= narrow[0]
        assert narrow[1] <= wide[1]


@pytest.mark.parametrize(("q", "enough"), [(0.5, 8), (0.9, 35), (0.95, 73), (0.99, 381)])
def test_below_a_number_of_values_there_is_no_interval(q: float, enough: int) -> None:
    """The upper rank would be beyond the sample, and the maximum is no upper bound."""
    assert rank_interval(first(enough), q) is not None
    assert all(rank_interval(first(n), q) is None for n in range(enough))
    assert least_number(q) == enough
    assert all(interval_ranks(n, q) is not None for n in range(enough, 2_000))


@pytest.mark.parametrize(("q", "n"), [(0.5, 21), (0.9, 100), (0.95, 381), (0.99, 740)])
def test_the_interval_covers_the_true_quantile_95_times_in_100(q: float, n: int) -> None:
    """The number of values below the true quantile has a binomial distribution."""
    interval = rank_interval(first(n), q)
    assert interval is not None
    low, high = round(interval[0]), round(interval[1])
    assert sum(comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(low, high)) >= 0.947


def test_no_values_have_no_quantile() -> None:
    assert quantile(np.array([], dtype=np.float64), 0.5) is None
    assert rank_interval(np.array([], dtype=np.float64), 0.5) is None


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, 99.0, float("nan")])
def test_a_share_outside_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile(first(3), q)
    with pytest.raises(ValueError, match="between 0 and 1"):
        rank_interval(first(3), q)


def test_nan_and_a_z_that_is_not_above_0_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        quantile(np.array([1.0, float("nan")]), 0.5)
    with pytest.raises(ValueError, match="above 0"):
        rank_interval(first(10), 0.5, z=0)
