from hypothesis import given
from hypothesis import strategies as st

from replay.longest_gap import LongestSince


@given(st.lists(st.floats(0.001, 1.0), max_size=60), st.integers(-1, 61))
def test_the_longest_duration_after_a_step_is_found(durations: list[float], after: int) -> None:
    gaps = LongestSince()
    gaps.extend(0, durations)
    assert gaps.longest_s(after) == max(durations[after + 1 :], default=None)


def test_clearing_forgets_earlier_gaps() -> None:
    gaps = LongestSince()
    gaps.add(1, 9.0)
    gaps.clear()
    gaps.add(2, 0.5)
    assert gaps.longest_s(0) == 0.5
