import random

import pytest
from tailspan_vllm.engine_core.step_model import FittedStepModel, StepWork

TRUTH = (2.4e-3, 36e-6, 0.05e-6, 0.4e-6, 20e-6)


def truth_s(work: StepWork) -> float:
    gamma, alpha, kappa, beta, delta = TRUTH
    p, q, c, n = work
    return gamma + alpha * p + kappa * q + beta * c + delta * n


def some_work(draw: random.Random) -> StepWork:
    """Return a step's work as in a serving engine: mostly decodes, and sometimes a prefill."""
    decodes = draw.randint(0, 32)
    tokens = draw.choice((0, 0, 0, draw.randint(1, 2048)))
    start = draw.randint(0, 4096)
    context = decodes * draw.randint(50, 4000)
    return StepWork(tokens, tokens * (start + tokens / 2), context, decodes)


def trained(noise: float, stall_every: int = 0, steps: int = 3000) -> FittedStepModel:
    """Return a model that was fitted to noisy steps, some with a long stall."""
    draw, model = random.Random(7), FittedStepModel()
    for number in range(steps):
        work = some_work(draw)
        duration = truth_s(work) * draw.uniform(1 - noise, 1 + noise)
        if stall_every and number % stall_every == 0:
            duration += 1.0
        model.learn(work, duration)
    return model


@pytest.mark.parametrize("stall_every", [0, 50])
def test_the_fit_finds_the_coefficients_with_and_without_stalls(stall_every: int) -> None:
    model = trained(noise=0.1, stall_every=stall_every)
    draw = random.Random(8)
    errors = []
    for _ in range(500):
        work = some_work(draw)
        errors.append(abs(model.predict(work) / truth_s(work) - 1))
    assert sorted(errors)[450] < 0.1
    assert model.error_ratio is not None
    assert model.error_ratio < 0.1
    assert model.r_squared is not None
    assert model.r_squared > 0.98


def test_a_stall_is_the_additional_time_and_noise_is_no_stall() -> None:
    model = trained(noise=0.05)
    assert model.stall_of(0.013, 0.010) == 0.0
    assert model.stall_of(1.010, 0.010) == pytest.approx(1.0, rel=0.01)


def test_without_enough_steps_the_model_predicts_nothing() -> None:
    model = FittedStepModel()
    assert not model.ready
    assert model.error_ratio is None
    assert model.r_squared is None


def test_coefficients_are_never_negative() -> None:
    draw, model = random.Random(1), FittedStepModel()
    for _ in range(500):
        model.learn(some_work(draw), draw.expovariate(100))
    assert min(model.coefficients) >= 0.0


def test_the_fit_follows_a_machine_that_became_slower() -> None:
    model, draw = trained(noise=0.02), random.Random(9)
    for _ in range(12000):
        work = some_work(draw)
        model.learn(work, 2 * truth_s(work))
    work = StepWork(512, 512 * 256, 20000, 16)
    assert model.predict(work) == pytest.approx(2 * truth_s(work), rel=0.1)


def slowed(times: float, steps: int) -> tuple[FittedStepModel, list[float]]:
    """Return a model of a machine that became slower, and the stalls found in its steps."""
    model, draw, stalls = trained(noise=0.05), random.Random(9), []
    for _ in range(steps):
        work = some_work(draw)
        duration = times * truth_s(work) * draw.uniform(0.95, 1.05)
        stalls.append(model.stall_of(duration, model.predict(work)))
        model.learn(work, duration)
    return model, stalls


def test_a_slower_machine_is_no_stall() -> None:
    model, stalls = slowed(3.0, 300)
    assert stalls[0] > 0
    assert not any(stalls[100:])
    assert model.pace > 1.5
    work = StepWork(0, 0.0, 20_000.0, 16)
    usual_s = 3 * truth_s(work)
    assert model.stall_of(usual_s + 1.0, model.predict(work)) == pytest.approx(1.0, rel=0.1)


def test_a_slower_machine_is_learnt() -> None:
    model, _ = slowed(3.0, 8000)
    assert model.pace == pytest.approx(1.0, abs=0.35)


def test_stalls_now_and_then_are_no_slower_machine() -> None:
    model = trained(noise=0.05, stall_every=10)
    assert model.pace == pytest.approx(1.0, abs=0.35)
    assert model.stall_of(1.010, 0.010) == pytest.approx(1.0, rel=0.01)
