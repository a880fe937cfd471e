from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from alerts.burnrate import EventCounts, State
from alerts.history import History, HistoryBucket, states_at
from alerts.policy import policy_for

buckets = st.lists(
    st.builds(
        lambda at, bad, good: HistoryBucket(at, EventCounts(bad, bad + good)),
        st.integers(0, 100),
        st.integers(0, 5),
        st.integers(0, 5),
    )
)


@given(buckets, st.integers(-5, 105), st.integers(0, 110))
def test_a_window_contains_the_buckets_within_it(
    each: list[HistoryBucket], from_s: int, length_s: int
) -> None:
    to_s = from_s + length_s
    inside = [bucket.counts for bucket in each if from_s < bucket.until_s <= to_s]
    total = sum(inside, EventCounts(0, 0))
    assert History(0, each, 1).counts(from_s, to_s) == total
    assert History(0, reversed(each), 1).counts(from_s, to_s) == total


@given(buckets, st.integers(0, 100))
def test_two_halves_are_the_whole(each: list[HistoryBucket], middle_s: int) -> None:
    history = History(0, each, 1)
    assert history.counts(-1, middle_s) + history.counts(middle_s, 200) == history.counts(-1, 200)


def test_a_window_is_covered_since_the_first_evaluation() -> None:
    history = History(1000, [], 15)
    assert history.window(300, 1000).covered == Fraction(15, 300)
    assert history.window(300, 1135).covered == Fraction(1, 2)
    assert history.window(300, 9000).covered == 1
    assert history.window(300, 0).covered == 0


def test_each_severity_has_the_state_of_its_most_urgent_pair() -> None:
    day_s = 86_400
    good = [HistoryBucket(at, EventCounts(0, 100)) for at in range(0, 4 * day_s, 600)]
    bad = [HistoryBucket(4 * day_s + at, EventCounts(100, 100)) for at in range(0, 1800, 60)]
    history = History(0, [*good, *bad], 15)
    budget = Fraction(1, 100)
    policy = policy_for(30 * day_s, budget)
    assert states_at(history, 4 * day_s - 1, policy, budget) == {
        "page": State.QUIET,
        "ticket": State.QUIET,
    }
    after = states_at(history, 4 * day_s + 1800, policy, budget)
    assert after["page"] is State.FIRING
