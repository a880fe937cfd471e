import numpy as np

from analysis.corrected_prediction import RankCorrection, scaled


def test_long_durations_are_scaled_and_short_ones_are_shifted() -> None:
    nan = np.nan
    measured = np.array([2.0, 1e-4, nan, 2.0, 2.0])
    now = np.array([1.0, 3e-4, 1.0, nan, 1.0])
    then = np.array([3.0, 1e-4, 5.0, 6.0, nan])
    np.testing.assert_allclose(scaled(measured, now, then), [6.0, 0.0, 5.0, 6.0, nan])


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
