from hypothesis import given
from hypothesis import strategies as st

from alerts.notify.retry import FIRST_S, LONGEST_S, delay_s

FAILURES = st.integers(1, 10**6)
CHANCE = st.floats(0, 1, exclude_max=True)


@given(FAILURES, CHANCE)
def test_a_delay_doubles_up_to_its_bound(failures: int, chance: float) -> None:
    """Jitter reduces a delay by at most half."""
    whole = min(LONGEST_S, FIRST_S * 2 ** min(failures - 1, 20))
    assert whole / 2 <= delay_s(failures, chance) <= whole


@given(FAILURES, CHANCE, st.floats(0, 3_600))
def test_retry_after_is_the_shortest_delay(failures: int, chance: float, asked_s: float) -> None:
    assert delay_s(failures, chance, asked_s) >= asked_s
