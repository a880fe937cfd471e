import numpy as np
import pytest

from analysis.corrected_prediction import (
    Replays,
    corrected_at,
    interval,
    rank_bounds,
    small_sample_factor,
)

NUMBER = 600
LATENCIES_S = np.random.default_rng(3).lognormal(0, 0.5, NUMBER)
SAME = Replays(LATENCIES_S, LATENCIES_S, LATENCIES_S)


def shares(seed: int, latencies_s: np.ndarray, q: float, blocks: int = 10) -> list[float]:
    """Return the shares below the quantile q in resampled blocks."""
    chance = np.random.default_rng(seed)
    below = (latencies_s <= np.quantile(latencies_s, q)).reshape(blocks, -1).mean(axis=1)
    return [float(below[chance.integers(0, blocks, blocks)].mean()) for _ in range(40)]


@pytest.mark.parametrize("q", [0.5, 0.99])
def test_the_interval_contains_the_quantile_of_19_of_20_later_windows(q: float) -> None:
    inside = []
    for seed in range(400):
        chance = np.random.default_rng(seed)
        window, later = chance.lognormal(0, 0.5, (2, NUMBER))
        value = float(np.quantile(window, q))
        bounds = rank_bounds(q, shares(seed, window, q), 10)
        found = interval(value, q, bounds, Replays(window, window, window), 0.0)
        assert found.low is not None
        assert found.high is not None
        inside.append(found.low <= np.quantile(later, q) <= found.high)
    assert 0.92 <= np.mean(inside) <= 0.98


def test_the_values_at_ranks_are_corrected_by_the_error_of_the_unchanged_replay() -> None:
    replays = Replays(LATENCIES_S * 3, LATENCIES_S, LATENCIES_S * 1.1)
    ranks = np.array([0.1, 0.5, 0.99])
    assert corrected_at(ranks, replays) == pytest.approx(
        3.3 * np.quantile(LATENCIES_S, ranks, method="hazen")
    )


def test_the_error_of_the_unchanged_replay_widens_the_interval() -> None:
    bounds = rank_bounds(0.5, shares(1, LATENCIES_S, 0.5), 10)
    exact, wrong = (interval(1.0, 0.5, bounds, SAME, error) for error in (0.0, 0.2))
    assert exact.low is not None
    assert wrong.low is not None
    assert wrong.low < exact.low < 1


def test_a_bound_beyond_the_largest_value_is_as_far_as_the_other_bound() -> None:
    value = float(np.quantile(LATENCIES_S, 0.99))
    found = interval(value, 0.99, (0.95, 1.0), SAME, 0.0)
    assert found.low is not None
    assert found.high is not None
    assert found.high >= value * value / found.low * (1 - 1e-9)


def test_a_value_of_zero_has_an_interval() -> None:
    queue_s = np.where(np.arange(NUMBER) < 500, 0.0, 2.0)
    found = interval(0.0, 0.5, (0.4, 0.9), Replays(queue_s, queue_s, queue_s), 0.1)
    assert (found.low, found.high) == (0.0, 2.0)


def test_few_blocks_widen_the_interval_or_give_none() -> None:
    found = [small_sample_factor(blocks) for blocks in (5, 10, 31, 1000)]
    # The quantiles of Student's t with 4, 9, 30 and 999 degrees of freedom.
    expected = np.array([2.776, 2.262, 2.042, 1.962]) / 1.96
    assert found == pytest.approx(expected * np.sqrt([5 / 4, 10 / 9, 31 / 30, 1]), rel=3e-3)
    assert small_sample_factor(4) is None
    assert rank_bounds(0.5, [0.5, 0.6], 4) is None
