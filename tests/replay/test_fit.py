from typing import Any

import numpy as np
import pytest

from replay.fit import (
    EdgeReports,
    FitError,
    StepReports,
    by_coordinates,
    fit_front_end,
    fit_steps,
    lognormal_quantiles,
    non_negative,
    stalls_of,
)

COEFFICIENTS = np.array([7e-3, 3e-5, 1e-9, 5e-8, 1.5e-5, 4e-3])


def reports(paces: list[float], stall_s: float = 0.0, **changed: Any) -> StepReports:
    """Return reports whose busy time is the model's busy time times a pace. The first report also
    has a stall."""
    chance = np.random.default_rng(1)
    work = chance.uniform(0.5, 2, (len(paces), 6)) * [500, 9_000, 2e6, 3e6, 8_000, 20]
    stalls = np.zeros(len(paces))
    stalls[0] = stall_s
    columns: dict[str, Any] = {
        "starts_s": np.arange(len(paces)) * 5.0,
        "work": work,
        "busy_s": work @ COEFFICIENTS * paces + stalls,
        "stall_s": stalls,
        "coefficients": np.tile(COEFFICIENTS, (len(paces), 1)),
        "error_ratio": np.full(len(paces), 0.1),
    }
    return StepReports(**{**columns, **changed})


def test_the_model_explains_the_busy_time_without_stalls() -> None:
    fit = fit_steps(reports([1.0] * 6, stall_s=3.0))
    assert fit.model.base_s == pytest.approx(7e-3)
    assert fit.model.context_token_s == pytest.approx(5e-8)
    assert fit.model.prefill_step_s == pytest.approx(4e-3)


def test_no_stall_is_longer_than_the_longest_step() -> None:
    found = stalls_of(
        np.array([10.0, 11.0, 12.0, 13.0, 15.0]),
        np.array([np.nan, 0.1, 0.0, 0.3, 0.2]),
        np.array([np.nan, 0.2, 0.2, 0.12, np.nan]),
    )
    assert [each.for_s for each in found] == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.2])
    assert [each.at_s for each in found] == pytest.approx(
        [10.0, 12.0, 12 + 1 / 3, 12 + 2 / 3, 13.0]
    )
    assert all(each.in_full for each in found)


def test_a_slow_stretch_has_its_own_pace() -> None:
    fit = fit_steps(reports([1.0, 1.0, 2.0, 1.0]))
    factors = [pace.factor for pace in fit.paces]
    assert factors[2] / factors[0] == pytest.approx(2.0)
    assert [pace.from_s for pace in fit.paces] == [0.0, 5.0, 10.0, 15.0]


def test_a_stretch_without_samples_has_the_pace_of_the_window() -> None:
    given = reports([1.0, 1.0, 1.0])
    given.work[1], given.busy_s[1] = np.nan, np.nan
    assert fit_steps(given).paces[1].factor == 1.0


def test_noise_has_the_reported_error_and_a_mean_of_one() -> None:
    factors = np.array(fit_steps(reports([1.0] * 4)).noise)
    assert factors.mean() == pytest.approx(1.0)
    assert np.abs(factors - 1).mean() == pytest.approx(0.1, rel=0.05)
    assert lognormal_quantiles(0.0) == (1.0,) * 64


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"coefficients": np.full((3, 6), np.nan)}, "not reported a step model"),
        ({"work": np.zeros((3, 6))}, "0 steps; allowed: at least 20"),
        ({"busy_s": np.full(3, np.nan)}, "0 steps"),
    ],
)
def test_too_little_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(FitError, match=reason):
        fit_steps(reports([1.0] * 3, **changed))


def test_the_front_end_is_fitted_despite_slow_clients() -> None:
    chance = np.random.default_rng(2)
    prompts = chance.integers(10, 4_000, 500).astype(float)
    running = chance.integers(0, 60, 500).astype(float)
    frontend_s = 2e-3 + 1e-6 * prompts + 5e-5 * running
    delivery_s = np.full(500, 1e-3)
    delivery_s[::10] = 20.0
    frontend_s[::25] += 3.0
    first_byte_s = np.full(500, np.nan)
    fit = fit_front_end(
        EdgeReports(
            received_s=np.arange(500, dtype=np.float64) * 100.0,
            first_token_s=frontend_s,
            last_token_s=frontend_s,
            frontend_s=frontend_s,
            first_byte_s=first_byte_s,
            delivery_s=delivery_s,
            prompt_tokens=prompts,
            running=running,
        )
    )
    assert fit.template_s == pytest.approx(2e-3, rel=0.02)
    assert fit.prompt_token_s == pytest.approx(1e-6, rel=0.02)
    assert fit.running_s == pytest.approx(5e-5, rel=0.02)
    assert fit.flush_s + 30 * fit.flush_sequence_s == pytest.approx(1e-3, rel=0.02)
    assert fit.first_byte_s == 0.0


def test_the_wait_for_earlier_requests_is_not_work_of_the_front_end() -> None:
    """The front end works on one request at a time, and is busy for 97 % of the time."""
    chance = np.random.default_rng(3)
    prompts = chance.integers(10, 4_000, 2_000).astype(float)
    work_s = 2e-3 + 5e-6 * prompts
    received_s = np.cumsum(chance.exponential(work_s.mean() / 0.97, 2_000))
    passed_s = np.empty(2_000)
    free_s = 0.0
    for number in range(2_000):
        free_s = max(free_s, received_s[number]) + work_s[number]
        passed_s[number] = free_s
    frontend_s = passed_s - received_s
    assert np.median(frontend_s) > 5 * work_s.mean()
    fit = fit_front_end(
        EdgeReports(
            received_s=received_s,
            first_token_s=frontend_s,
            last_token_s=frontend_s,
            frontend_s=frontend_s,
            first_byte_s=np.full(2_000, np.nan),
            delivery_s=np.full(2_000, np.nan),
            prompt_tokens=prompts,
            running=np.zeros(2_000),
        )
    )
    assert fit.template_s == pytest.approx(2e-3, rel=0.02)
    assert fit.prompt_token_s == pytest.approx(5e-6, rel=0.02)


@pytest.mark.parametrize("seed", range(20))
def test_the_fast_solution_equals_the_iterated_one(seed: int) -> None:
    chance = np.random.default_rng(seed)
    columns = chance.lognormal(0, 0.5, (300, 4))
    columns[:, 3] = 0.0  # this kind of work did not occur
    values = columns @ np.array([1.0, 0.5, 0.0, 0.0]) + chance.normal(0, 0.2, 300)
    weights = chance.uniform(0.5, 2.0, 300)
    fast = non_negative(columns, values, weights)
    weighted = (columns * weights[:, None]).T
    slow = by_coordinates(weighted @ columns, weighted @ values)

    def loss(of: np.ndarray) -> float:
        return float((weights * (values - columns @ of) ** 2).sum())

    assert (fast >= 0).all()
    assert loss(fast) <= loss(slow) * (1 + 1e-6)
