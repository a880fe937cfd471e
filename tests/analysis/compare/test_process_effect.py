import numpy as np
import pytest

from analysis.compare.decision import Criteria, decide
from analysis.compare.process_effect import difference_of, process_effect
from analysis.compare.verdict import CompareVerdict
from tests.analysis.compare.observed import observed

CRITERIA = Criteria(0.5, looks=False)
BEFORE = observed(1_500, seed=1)
ONE_EACH = difference_of({"a": 1.0}, {"b": 1.0})


def test_the_difference_is_that_of_the_processes_that_changed() -> None:
    assert pytest.approx(2**0.5) == ONE_EACH
    half = {"a": 0.5, "b": 0.5}
    assert difference_of(half, {"c": 0.5, "d": 0.5}) == pytest.approx(1.0)
    assert difference_of(half, {"a": 0.5, "c": 0.5}) == pytest.approx(0.5**0.5)
    assert difference_of(half, half) == 0.0


def test_the_spread_of_processes_is_found() -> None:
    factors = (1.0, 1.06, 0.95, 1.1, 0.93)
    processes = [observed(1_500, seed=10 + i, factor=each) for i, each in enumerate(factors)]
    found = process_effect(BEFORE, [processes], CRITERIA, ONE_EACH)
    assert (found.processes, found.freedom) == (5, 4)
    assert found.log_sd == pytest.approx(np.std(np.log(factors), ddof=1), rel=0.15)
    assert found.log_half == pytest.approx(2.77 * 2**0.5 * (found.log_sd or 0.0), rel=0.01)
    assert "5 processes with the same configuration differ by" in found.sentence


def test_a_difference_between_configurations_is_not_one_of_processes() -> None:
    slow = [observed(1_500, seed=20 + i, factor=2.0) for i in range(3)]
    fast = [observed(1_500, seed=30 + i) for i in range(3)]
    found = process_effect(BEFORE, [slow, fast], CRITERIA, ONE_EACH)
    assert found.freedom == 4
    assert found.log_sd is not None
    assert found.log_sd < 0.02


def test_too_few_processes_leave_the_effect_unknown() -> None:
    three = [observed(1_500, seed=40 + i) for i in range(3)]
    short = observed(20, seed=50)
    found = process_effect(BEFORE, [[*three, short], [three[0]]], CRITERIA, ONE_EACH)
    assert (found.processes, found.log_sd, found.log_half) == (3, None, 0.0)
    assert "too few processes" in found.sentence


def test_a_change_as_large_as_that_of_a_restart_is_undecided() -> None:
    after = observed(1_500, seed=2, factor=1.12)
    assert decide(BEFORE, after, CRITERIA).verdict is CompareVerdict.WORSE
    found = decide(BEFORE, after, Criteria(0.5, looks=False, restart_half=0.2))
    assert found.verdict is CompareVerdict.UNDECIDED
    assert "a restart alone can change the latency as much" in found.reasons[0]
    slower = observed(1_500, seed=2, factor=1.5)
    asked = Criteria(0.5, looks=False, restart_half=0.2)
    assert decide(BEFORE, slower, asked).verdict is CompareVerdict.WORSE
