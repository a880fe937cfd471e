import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tailspan_vllm.engine_core.step_ledger import Ledger
from tailspan_vllm.engine_core.step_model import StepWork

from benchmarks._step_fits import SingleSteps, all_fits, errors, solved
from replay.fit import StepReports

COEFFICIENTS = np.array([2.4e-3, 3.6e-5, 5e-11, 4e-10, 2e-4, 3e-3])


def steps(seconds: int = 40, slow: tuple[int, ...] = ()) -> SingleSteps:
    """Return steps that follow the model exactly, and take twice as long in some seconds."""
    chance = np.random.default_rng(2)
    ended_s = np.arange(seconds * 30) / 30
    work = np.column_stack([np.ones(ended_s.size), chance.uniform(0, 1, (ended_s.size, 4))])
    work *= [1, 800, 3e5, 9_000, 16]
    prefills = chance.random(ended_s.size) < 0.5
    work[~prefills, 1:3] = 0.0
    work = np.column_stack([work, prefills])
    pace = np.where(np.isin(np.floor(ended_s), slow), 2.0, 1.0)
    return SingleSteps(ended_s, work @ COEFFICIENTS * pace, work)


def reports(of: SingleSteps) -> StepReports:
    second = of.second
    number = int(second.max()) + 1
    return StepReports(
        starts_s=np.arange(number, dtype=np.float64),
        work=np.stack([np.bincount(second, column) for column in of.work.T], axis=1),
        busy_s=np.bincount(second, of.worked_s).astype(np.float64),
        stall_s=np.zeros(number),
        coefficients=np.tile(COEFFICIENTS, (number, 1)),
        error_ratio=np.full(number, 0.1),
    )


def test_every_fit_finds_the_coefficients_of_exact_steps() -> None:
    found = all_fits(reports(steps()), steps())
    for name in found.keys() - {"steps, without κ"}:
        assert found[name] == pytest.approx(COEFFICIENTS, rel=1e-4)
        assert errors(found[name], steps()).busy < 1e-5
    assert errors(found["steps"], steps()).r_squared == pytest.approx(1)
    assert errors(found["steps, without κ"], steps()).r_squared < 1


def test_the_fit_without_the_worst_seconds_ignores_slow_seconds() -> None:
    disturbed = steps(slow=(3, 4, 5, 20))
    found = all_fits(reports(disturbed), disturbed)
    trimmed = found["steps, worst seconds dropped"]
    assert trimmed / trimmed[0] == pytest.approx(COEFFICIENTS / COEFFICIENTS[0], rel=1e-4)
    assert errors(trimmed, disturbed).busy < errors(COEFFICIENTS, disturbed).busy * 2


def test_no_coefficient_is_negative() -> None:
    columns = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    falling = np.array([3.0, 2.0, 1.0])
    assert solved(columns.T @ columns, columns.T @ falling) == pytest.approx([2.0, 0.0])


def test_the_recorder_writes_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks/_step_recorder")
    monkeypatch.setenv("STEP_RECORDER_FILE", str(tmp_path / "steps"))
    monkeypatch.setattr(Ledger, "end_step", Ledger.end_step)
    import step_recorder  # type: ignore[import-not-found]

    try:
        step_recorder.install()
        Ledger().end_step(StepWork(100, 5000.0, 0, 0), 1.0, 1.5, 1)
    finally:
        del sys.modules["step_recorder"]
    (line,) = (tmp_path / "steps").read_text().splitlines()
    assert json.loads(line) == [1.5, 0.5, 0.0, 100, 5000.0, 0, 0]
