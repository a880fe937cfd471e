"""The longest gap of a request, from when the engine's steps ended."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tailspan_vllm.steps import StepClock

steps = st.lists(st.integers(1, 1000), min_size=2, max_size=60).map(
    lambda gaps: [sum(gaps[: index + 1]) / 1000 for index in range(len(gaps))]
)


@given(steps, st.data())
def test_the_longest_gap_is_that_of_the_steps_taken_part_in(
    ends: list[float], data: st.DataObject
) -> None:
    """Against the plain definition, for any first and last token."""
    clock = StepClock()
    for end in ends:
        clock.tick(end)
    first = data.draw(st.integers(0, len(ends) - 2))
    last = data.draw(st.integers(first + 1, len(ends) - 1))
    expected = max(b - a for a, b in pairwise(ends[first : last + 1]))
    assert clock.longest_gap(ends[first], ends[last]) == expected


def test_a_step_told_in_portions_counts_once() -> None:
    """vLLM hands the outputs of a large step over in portions of one timestamp."""
    clock = StepClock()
    for end in (1.0, 1.0, 2.5, 2.5):
        clock.tick(end)
    assert clock.longest_gap(1.0, 2.5) == 1.5


def test_what_the_ring_has_forgotten_is_unknown() -> None:
    """Memory is bounded; a request older than the ring gets no guess."""
    clock = StepClock(capacity=4)
    for end in range(20):
        clock.tick(float(end))
    assert clock.longest_gap(0.0, 19.0) is None
    assert clock.longest_gap(18.0, 19.0) == 1.0


def test_a_preempted_request_waited_from_its_last_step_to_the_first_after_it_resumed() -> None:
    """The gap spans steps that others took."""
    clock = StepClock()
    for end in (1.0, 2.0, 3.0, 4.0, 5.0):
        clock.tick(end)
    assert clock.gap_around(2.1, 4.5) == 3.0
    assert clock.gap_around(0.5, 4.5) is None
