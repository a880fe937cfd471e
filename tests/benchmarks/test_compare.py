import numpy as np
import pytest

from benchmarks._compare_cases import SAME, SLOW, pair
from benchmarks.compare import mann_whitney, z_test


def test_the_rivals_reject_five_percent_of_equal_samples_and_find_a_shift() -> None:
    chance = np.random.default_rng(1)
    for test in (mann_whitney, z_test):
        p = [test(chance.exponential(size=200), chance.exponential(size=300)) for _ in range(400)]
        assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.03)
        assert test(chance.normal(size=300), chance.normal(1.0, size=300)) < 1e-6


def test_the_true_change_is_the_factor_of_the_steps() -> None:
    """TTFT grows by a smaller factor than the duration of a step, because the front end's time
    stays the same."""
    for kind, low in ((SAME, 0.0), (SLOW, 0.1)):
        case = pair(kind, 3, 100)
        for metric in ("ttft", "tpot"):
            _, after = case.sides(metric)
            true = after.value_s / case.without_change(metric) - 1
            assert (true <= low * 1.001 + 1e-9).all()
            assert low * 0.7 <= np.median(true)
