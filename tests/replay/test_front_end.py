import pytest

from replay.front_end import ReplayFrontEnd


def test_work_is_done_one_after_the_other() -> None:
    front_end = ReplayFrontEnd()
    assert front_end.take(0.0, 2.0) == 2.0
    assert front_end.take(1.0, 1.0) == 3.0
    assert front_end.take(5.0, 1.0) == 6.0
    assert front_end.busy_s == 4.0


def test_tokens_are_written_in_order() -> None:
    front_end = ReplayFrontEnd()
    front_end.take(0.0, 2.0)
    front_end.take(1.5, 4.0)
    assert front_end.write(1.0, 0.1) == pytest.approx(2.1)
    assert front_end.write(1.6, 0.1) == pytest.approx(6.1)
    assert front_end.write(9.0, 0.1) == pytest.approx(9.1)
    assert ReplayFrontEnd().write(0.0, 0.1) == pytest.approx(0.1)


def test_a_small_share_of_a_core_slows_all_front_end_work() -> None:
    front_end = ReplayFrontEnd()
    front_end.pace = 10.0
    assert front_end.take(0.0, 1.0) == 10.0
    assert front_end.write(20.0, 0.1) == pytest.approx(21.0)
    assert front_end.busy_s == 10.0
