import numpy as np
import pytest

from analysis.compare.step_coefficients import NAMES, WorkIntervals, coefficients_of

TRUE = np.array([7e-3, 32e-6, 1.3e-9, 0.05e-6, 15e-6])


def stretches(number: int, seed: int, factor: float = 1.0) -> WorkIntervals:
    chance = np.random.default_rng(seed)
    steps = chance.integers(200, 500, number).astype(np.float64)
    prefill = chance.uniform(0, 40, number) * 1000
    work = np.stack(
        [
            *(steps, prefill, prefill * chance.uniform(500, 3000, number)),
            *(steps * chance.uniform(1, 20, number) * 1000, steps * chance.uniform(1, 30, number)),
        ],
        axis=1,
    )
    return WorkIntervals(work, work @ TRUE * factor * chance.lognormal(0, 0.002, number))


def test_the_coefficients_and_their_common_factor_are_found() -> None:
    found = coefficients_of(stretches(120, 1), stretches(120, 2, 1.1))
    assert found is not None
    assert found.pace.low < 1.1 < found.pace.high
    assert found.pace.high - found.pace.low < 0.01
    for name, true in zip(NAMES, TRUE, strict=True):
        assert found.before[name].low <= true * 1.02
        assert found.before[name].high >= true * 0.98
        assert found.before[name].value >= 0
    assert found.after["gamma"].value == pytest.approx(1.1 * TRUE[0], rel=0.02)


def test_too_few_stretches_have_no_coefficients() -> None:
    assert coefficients_of(stretches(49, 1), stretches(120, 2)) is None
    assert coefficients_of(stretches(0, 1), stretches(0, 2)) is None
