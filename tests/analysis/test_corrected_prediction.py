import numpy as np
import pytest

from analysis.corrected_prediction import (
    Predicted,
    RankBounds,
    RankCorrection,
    intervals,
    nested,
    nested_latencies,
    rank_bounds,
    scaled,
    small_sample_factor,
)
from analysis.percentile_curve import shares_below

NUMBER = 600
LATENCIES_S = np.random.default_rng(3).lognormal(0, 0.5, NUMBER)
Q = np.array([0.5, 0.99])


def test_long_durations_are_scaled_and_short_ones_are_shifted() -> None:
    nan = np.nan
    measured = np.array([1e-4, nan, 2.0, 2.0, 2.0])
    now = np.array([3e-4, 1.0, nan, 1.0, 1.0])
    then = np.array([1e-4, 5.0, 6.0, 3.0, nan])
    np.testing.assert_allclose(scaled(measured, now, then), [0.0, 5.0, 6.0, 6.0, nan])


def test_a_higher_percentile_is_never_below_a_lower_one() -> None:
    """The replay is too fast at the lower percentile and too slow at the higher one."""
    measured, now = np.array([1.0, 2.0]), np.array([0.5, 4.0])
    np.testing.assert_allclose(scaled(measured, now, np.array([1.5, 4.0])), [3.0, 3.0])


def test_an_unchanged_replay_is_corrected_to_the_measured_values() -> None:
    chance = np.random.default_rng(1)
    measured, now = chance.uniform(0, 2, 500), chance.lognormal(size=500)
    found = RankCorrection(now, measured).corrected(now)
    np.testing.assert_allclose(np.sort(found), np.sort(measured))
    assert (np.argsort(found) == np.argsort(now)).all()


def test_unknown_values_stay_unknown() -> None:
    then = np.array([1.0, np.nan, 2.0])
    none = np.array([np.nan])
    np.testing.assert_array_equal(RankCorrection(none, then).corrected(then), then)
    found = RankCorrection(then, 2 * then).corrected(then)
    np.testing.assert_allclose(found, [2.0, np.nan, 4.0])


def shares(seed: int, latencies_s: np.ndarray, blocks: int = 10) -> list[np.ndarray]:
    """Return the shares below the quantiles `Q`, for each of 40 resamples of the blocks."""
    chance = np.random.default_rng(seed)
    at = np.quantile(latencies_s, Q)
    parts = latencies_s.reshape(blocks, -1)
    return [shares_below(parts[chance.integers(0, blocks, blocks)].ravel(), at) for _ in range(40)]


def found(
    values: np.ndarray, latencies_s: np.ndarray, bounds: RankBounds | None, error: float = 0.0
) -> list[Predicted]:
    """Return the intervals of a replay that reproduces the window with this relative error."""
    correction = RankCorrection(latencies_s, latencies_s)
    return intervals(values, Q, bounds, latencies_s, correction, np.full(Q.size, error))


def test_the_intervals_contain_the_quantiles_of_19_of_20_later_windows() -> None:
    inside = []
    for seed in range(400):
        chance = np.random.default_rng(seed)
        window, later = chance.lognormal(0, 0.5, (2, NUMBER))
        bounds = rank_bounds(Q, shares(seed, window), 10)
        each = np.array(found(np.quantile(window, Q), window, bounds), dtype=float)
        real = np.quantile(later, Q)
        inside.append((each[:, 1] <= real) & (real <= each[:, 2]))
    assert (np.mean(inside, axis=0) >= 0.92).all()
    assert (np.mean(inside, axis=0) <= 0.98).all()


def test_the_values_at_ranks_are_corrected_by_the_error_of_the_unchanged_replay() -> None:
    correction = RankCorrection(LATENCIES_S, LATENCIES_S * 1.1)
    ranks = np.array([0.1, 0.5, 0.99])
    assert correction.corrected_at(ranks, np.sort(LATENCIES_S * 3)) == pytest.approx(
        3.3 * np.quantile(LATENCIES_S, ranks, method="hazen")
    )


def test_the_error_of_the_unchanged_replay_widens_the_interval() -> None:
    bounds = rank_bounds(Q, shares(1, LATENCIES_S), 10)
    exact, wrong = (found(np.ones(2), LATENCIES_S, bounds, error)[0] for error in (0.0, 0.2))
    assert exact.low is not None
    assert wrong.low is not None
    assert wrong.low < exact.low < 1


def test_a_bound_beyond_the_largest_value_is_as_far_as_the_other_bound() -> None:
    values = np.quantile(LATENCIES_S, Q)
    bounds = RankBounds(np.array([0.45, 0.95]), np.array([0.55, 1.0]))
    p99 = found(values, LATENCIES_S, bounds)[1]
    assert p99.low is not None
    assert p99.high is not None
    assert p99.high >= values[1] ** 2 / p99.low * (1 - 1e-9)


def test_a_value_of_zero_has_an_interval() -> None:
    queue_s = np.where(np.arange(NUMBER) < 500, 0.0, 2.0)
    bounds = RankBounds(np.array([0.4, 0.9]), np.array([0.9, 0.999]))
    p50, p99 = found(np.array([0.0, 2.0]), queue_s, bounds, 0.1)
    assert p50 == (0.0, 0.0, 2.0)
    assert p99.low is not None
    assert p99.low < 2.0


def test_unknown_predictions_have_no_interval() -> None:
    unknown = np.full(2, np.nan)
    bounds = rank_bounds(Q, [unknown, unknown, unknown], 10)
    assert bounds is None
    assert found(unknown, unknown, bounds) == [Predicted(None)] * 2


def test_few_blocks_widen_the_interval_or_give_none() -> None:
    factors = [small_sample_factor(blocks) for blocks in (5, 10, 31, 1000)]
    # Quantiles of Student's t with 4, 9, 30 and 999 degrees of freedom.
    expected = np.array([2.776, 2.262, 2.042, 1.962]) / 1.96
    assert factors == pytest.approx(expected * np.sqrt([5 / 4, 10 / 9, 31 / 30, 1]), rel=3e-3)
    assert small_sample_factor(4) is None
    assert rank_bounds(Q, shares(1, LATENCIES_S), 4) is None


def test_a_part_of_a_latency_is_at_most_the_latency() -> None:
    queue = [Predicted(2.0, 1.0, 3.0), Predicted(0.5, 0.4, 0.6), Predicted(1.0), Predicted(None)]
    ttft = [Predicted(1.5, 1.2, 2.0), Predicted(1.5, 1.2, 2.0), Predicted(None), Predicted(1.5)]
    assert nested(queue, ttft) == [
        Predicted(1.5, 1.0, 2.0),
        Predicted(0.5, 0.4, 0.6),
        Predicted(1.0),
        Predicted(None),
    ]


def test_only_latencies_of_the_same_requests_are_nested() -> None:
    long, middle, short = ([Predicted(value)] for value in (3.0, 2.0, 1.0))
    known = {"ttft_s": middle, "e2e_s": short, "queue_s": long}
    assert nested_latencies(known, all_streamed=True) == dict.fromkeys(known, short)
    found = nested_latencies(known, all_streamed=False)
    assert found == {"ttft_s": middle, "e2e_s": short, "queue_s": short}
