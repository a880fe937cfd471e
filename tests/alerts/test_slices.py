from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from alerts.burnrate import EventCounts
from alerts.history import HistoryBucket
from alerts.slices import Slices

MINUTE = Slices(60, Fraction(9, 10), "90 %")

buckets = st.lists(
    st.builds(
        lambda at, bad, good: HistoryBucket(at * 15, EventCounts(bad, bad + good)),
        st.integers(1, 40),
        st.integers(0, 3),
        st.integers(0, 9),
    )
)


@given(buckets, st.integers(0, 600))
def test_each_slice_with_events_is_one_event(each: list[HistoryBucket], until_s: int) -> None:
    judged = MINUTE.judged(each, until_s)
    ends = [end for end in range(60, 601, 60) if end <= until_s]
    for end in ends:
        inside = [one.counts for one in each if end - 60 < one.until_s <= end]
        whole = sum(inside, EventCounts(0, 0))
        found = [one.counts for one in judged if one.until_s == end]
        if not whole.events:
            assert found == []
        else:
            assert found == [
                EventCounts(int(10 * (whole.events - whole.bad) < 9 * whole.events), 1)
            ]
    assert {one.until_s for one in judged} <= set(ends)


def test_a_target_of_all_allows_no_bad_event() -> None:
    strict = Slices(60, Fraction(1), "100 %")
    assert strict.judged([HistoryBucket(60, EventCounts(1, 1000))], 60) == [
        HistoryBucket(60, EventCounts(1, 1))
    ]
    assert MINUTE.judged([HistoryBucket(60, EventCounts(1, 10))], 60) == [
        HistoryBucket(60, EventCounts(0, 1))
    ]
