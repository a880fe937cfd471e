from dataclasses import replace

import numpy as np
import pytest

from replay.conditions import Conditions, Pace, Shift, Stall
from replay.engine_config import EngineConfig
from replay.step_clock import StepClock, step_noise


def test_noise_has_the_quantiles_that_were_given() -> None:
    config = replace(EngineConfig(), step_noise_quantiles=(0.8, 0.9, 1.0, 1.2, 3.0))
    factors = step_noise(config, "seed")
    assert factors == step_noise(config, "seed")
    assert (min(factors), max(factors)) == (0.8, 3.0)
    assert np.quantile(factors, [0.1, 0.5, 0.9]) == pytest.approx([0.8, 1.0, 3.0], rel=0.05)


@pytest.mark.parametrize("quantiles", [(0.0, 1.0), (1.0, 0.9), (float("inf"),)])
def test_quantiles_that_are_not_valid_factors_are_refused(quantiles: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"step_noise_quantiles.*allowed"):
        replace(EngineConfig(), step_noise_quantiles=quantiles)


def test_a_step_is_stopped_until_the_stall_ends() -> None:
    """Only the step that begins during the stall is delayed."""
    clock = StepClock([1.0], [Stall(1.0, 0.5)])
    assert [clock.stall_s(at, 1, 0) for at in (0.9, 1.2, 1.3)] == pytest.approx([0, 0.3, 0])


def test_a_reported_stall_lengthens_the_next_step_in_full() -> None:
    clock = StepClock([1.0], [Stall(1.0, 0.5, in_full=True), Stall(1.1, 0.2)])
    assert [clock.stall_s(at, 1, 0) for at in (0.9, 1.2, 1.3)] == pytest.approx([0, 0.6, 0])


def test_conditions_are_in_order_of_time() -> None:
    with pytest.raises(ValueError, match="stalls: must be in order of time"):
        Conditions(stalls=((Stall(2.0, 0.1), Stall(1.0, 0.1)),))
    with pytest.raises(ValueError, match="paces: each factor must be above 0"):
        Conditions(paces=((Pace(0.0, 0.0),),))
    assert Conditions(stalls=((Stall(2.0, 0.1),),)).stalls_of(1) == ()


def test_the_events_of_many_ranges_are_found_without_reading_all_events_for_each() -> None:
    """A resampled day has thousands of ranges and of changes of speed."""
    reads = []

    class Counted(Pace):
        @property
        def from_s(self) -> float:
            reads.append(self[0])
            return float(self[0])

    paces = tuple(Counted(5.0 * place, 1.0 + place) for place in range(1_000))
    shifts = [Shift(10.0 * place, 10.0 * place + 10, 2.0) for place in range(500)]
    found = Conditions(paces=(paces,)).shifted(shifts).paces_of(0)
    assert [each[0] for each in found] == [each[0] + 2.0 for each in paces]
    assert [each.factor for each in found] == [each.factor for each in paces]
    assert len(reads) < 50 * len(paces)
