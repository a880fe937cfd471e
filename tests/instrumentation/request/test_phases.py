from hypothesis import given
from hypothesis import strategies as st
from tailspan_vllm.request.phases import split

instants = st.lists(
    st.floats(0, 1e5, allow_nan=False, allow_infinity=False), min_size=6, max_size=6
).map(sorted)


@given(instants, st.integers(0, 4))
def test_phases_sum_to_the_end_to_end_time(times: list[float], reached: int) -> None:
    received, *middle, delivered = times
    values = dict(zip(("queued", "scheduled", "first_token", "last_token"), middle, strict=True))
    unreached = dict.fromkeys(list(values)[reached:])
    phases = split(received=received, delivered=delivered, **{**values, **unreached})
    known = [phase for phase in phases if phase is not None]
    assert len(known) == reached + 1
    assert abs(sum(known) - (delivered - received)) < 1e-6
    assert all(phase >= 0 for phase in known)


def test_a_phase_that_never_began_is_unknown_and_not_zero() -> None:
    assert split(0.0, 1.0, None, None, None, 5.0) == (1.0, 4.0, None, None, None)
