from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from alerts.burnrate import (
    EventCounts,
    State,
    WindowCounts,
    WindowPair,
    budget_left,
    burn,
    detection_s,
    exhaustion_s,
    judge,
    judge_pair,
)
from alerts.policy import policy_for

DAY_S = 86_400
FACTOR = Fraction("14.4")
FAST = WindowPair("page", 3600, 300, FACTOR)

counts = st.builds(
    lambda bad, good: EventCounts(bad, bad + good), st.integers(0, 10**6), st.integers(0, 10**6)
)
shares = st.fractions(Fraction(1, 10**6), Fraction(1, 2))


def full(bad: int, events: int) -> WindowCounts:
    """Return a window that has data for its whole length."""
    return WindowCounts(EventCounts(bad, events), Fraction(1))


@pytest.mark.parametrize(
    ("bad", "state"), [(14_440, State.FIRING), (14_401, State.FIRING), (14_400, State.QUIET)]
)
def test_just_above_the_factor_fires_and_exactly_on_it_does_not(bad: int, state: State) -> None:
    """The burn rate is not rounded before the comparison: 14.401 fires."""
    window = full(bad, 1_000_000)
    assert judge_pair(window, window, FACTOR, Fraction(1, 1000), 5) is state


def test_both_windows_must_burn() -> None:
    burning, fine = full(500, 1000), full(0, 1000)
    budget = Fraction(1, 100)
    assert judge_pair(burning, burning, FACTOR, budget, 5) is State.FIRING
    assert judge_pair(burning, fine, FACTOR, budget, 5) is State.QUIET
    assert judge_pair(fine, burning, FACTOR, budget, 5) is State.QUIET


def test_one_bad_request_of_ten_does_not_page() -> None:
    budget = Fraction(1, 1000)
    assert judge_pair(full(1, 10), full(1, 1), FACTOR, budget, 5) is State.LOW_TRAFFIC
    assert judge_pair(full(4, 10), full(4, 4), FACTOR, budget, 5) is State.LOW_TRAFFIC
    assert judge_pair(full(5, 5), full(1, 1), FACTOR, budget, 5) is State.FIRING


def test_a_fifth_bad_just_after_a_start_does_not_page() -> None:
    """In three minutes, 20 % bad requests spend less than 2 % of the budget, the threshold of the
    page."""
    started = WindowCounts(EventCounts(200, 1000), Fraction(180, 3600))
    short = WindowCounts(EventCounts(200, 1000), Fraction(180, 300))
    assert judge_pair(started, short, FACTOR, Fraction(1, 100), 5) is State.COLD_START


def test_no_data_is_not_no_burn() -> None:
    assert judge_pair(full(0, 0), full(0, 0), FACTOR, Fraction(1, 100), 5) is State.NO_DATA
    assert judge_pair(full(9, 9), full(0, 0), FACTOR, Fraction(1, 100), 5) is State.NO_DATA
    assert burn(EventCounts(0, 0), Fraction(1, 100)) is None
    assert budget_left(EventCounts(0, 0), Fraction(1, 100)) is None


@pytest.mark.parametrize(("target", "seconds"), [("0.999", 52), ("0.99", 518), ("0.95", 2592)])
def test_a_total_failure_is_detected_after_the_workbooks_times(target: str, seconds: int) -> None:
    found = detection_s(FAST, 1 - Fraction(target), Fraction(1))
    assert found is not None
    assert round(found) == seconds


@given(
    st.sampled_from(policy_for(30 * DAY_S, Fraction(1, 100)).pairs),
    st.sampled_from(["0.95", "0.99", "0.999"]),
    st.fractions(Fraction(1, 20), Fraction(1)),
    st.booleans(),
)
def test_a_start_takes_as_long_to_detect_as_a_change(
    pair: WindowPair, target: str, bad_ratio: Fraction, cold: bool
) -> None:
    """The formula holds for a burn from the first second, and for a burn after a good day."""
    budget = 1 - Fraction(target)
    at_s = detection_s(pair, budget, bad_ratio)
    assume(at_s is not None and at_s <= pair.long_s)
    assert at_s is not None

    def fires(after_s: Fraction) -> bool:
        def window(length_s: int) -> WindowCounts:
            burning_s = min(after_s, Fraction(length_s))
            covered_s = burning_s if cold else Fraction(length_s)
            bad, events = 10**6 * bad_ratio * burning_s, 10**6 * covered_s
            scale = bad.denominator * events.denominator
            return WindowCounts(
                EventCounts(int(bad * scale), int(events * scale)), covered_s / length_s
            )

        state = judge_pair(window(pair.long_s), window(pair.short_s), pair.factor, budget, 5)
        return state is State.FIRING

    step = Fraction(1, 1000)
    assert not fires(at_s)
    assert fires(at_s + step)
    assert not fires(at_s - step)


@given(counts, counts, shares)
def test_the_burn_rate_of_two_ranges_is_between_their_burn_rates(
    one: EventCounts, two: EventCounts, budget: Fraction
) -> None:
    assume(one.events and two.events)
    first, second, both = burn(one, budget), burn(two, budget), burn(one + two, budget)
    assert first is not None
    assert second is not None
    assert both is not None
    assert min(first, second) <= both <= max(first, second)


@given(counts, counts, shares, st.fractions(Fraction(1, 10), Fraction(50)))
def test_more_bad_events_never_quieten(
    long: EventCounts, short: EventCounts, budget: Fraction, factor: Fraction
) -> None:
    assume(long.bad < long.events)
    worse = EventCounts(long.bad + 1, long.events)
    before, after = (
        judge_pair(
            WindowCounts(each, Fraction(1)), WindowCounts(short, Fraction(1)), factor, budget, 5
        )
        for each in (long, worse)
    )
    assert before is not State.FIRING or after is State.FIRING


def test_every_pair_is_judged() -> None:
    policy = policy_for(30 * DAY_S, Fraction(1, 100))
    lengths = {length for pair in policy.pairs for length in (pair.long_s, pair.short_s)}
    states = judge({length: full(20, 100) for length in lengths}, policy, Fraction(1, 100))
    assert set(states.values()) == {State.FIRING}
    assert len(states) == 4


def test_a_budget_runs_out_at_the_pace_it_burns() -> None:
    assert exhaustion_s(Fraction(1), Fraction("14.4"), 30 * DAY_S) == 50 * 3600
    assert exhaustion_s(Fraction(-1), Fraction(2), 30 * DAY_S) == 0
    assert exhaustion_s(Fraction(1), Fraction(0), 30 * DAY_S) is None


@pytest.mark.parametrize("bad", [(-1, 0), (2, 1)])
def test_impossible_counts_are_refused(bad: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="allowed: 0 to all"):
        EventCounts(*bad)
    with pytest.raises(ValueError, match="budget"):
        burn(EventCounts(0, 1), Fraction(0))
    with pytest.raises(ValueError, match="covered"):
        WindowCounts(EventCounts(0, 1), Fraction(2))
