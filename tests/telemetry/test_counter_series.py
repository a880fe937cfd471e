import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from telemetry.counter_series import CounterSeries, series_numbers

SECOND_NS = 10**9
INT64 = st.integers(-(2**63), 2**63 - 1)


def ns(*seconds: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(seconds, np.int64) * SECOND_NS


@given(st.lists(st.tuples(INT64, st.integers(0, 3)), min_size=1))
def test_rows_have_one_number_if_and_only_if_they_are_equal(rows: list[tuple[int, int]]) -> None:
    """Senders choose process ids and start times, so each may be any 64-bit integer."""
    numbers = series_numbers(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))
    assert len(set(zip(rows, numbers.tolist(), strict=True))) == len(set(rows))
    assert set(numbers.tolist()) == set(range(len(set(rows))))


def test_an_increase_is_between_neighbouring_samples_in_any_order() -> None:
    series = np.array([1, 0, 0, 1, 0, 0])
    counters = CounterSeries.of(series, ns(2, 3, 1, 1, 7, 9))
    values = np.array([8.0, 5.0, 2.0, 7.0, 1.0, np.nan])
    np.testing.assert_array_equal(counters.rises(values), [1, 3, np.nan, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(counters.apart_s, [1, 2, np.nan, np.nan, 4, 2])


@given(st.lists(st.integers(0, 100), min_size=2), st.data())
def test_span_differences_sum_to_those_of_samples(steps: list[int], data: st.DataObject) -> None:
    values = np.cumsum(steps).astype(np.float64)
    at = np.arange(values.size, dtype=np.int64) * SECOND_NS
    cuts = sorted(data.draw(st.sets(st.integers(1, values.size - 1))))
    first, last = np.array([0, *cuts]), np.array([*cuts, values.size]) - 1
    shuffled = np.array(data.draw(st.permutations(range(first.size))))
    first, last = first[shuffled], last[shuffled]
    counters = CounterSeries.of(np.zeros(first.size, np.int64), at[first], at[last], 60)
    intervals = counters.intervals()
    differences = intervals.differences(values[first], values[last])
    assert differences.sum() == values[-1] - values[0]
    assert (intervals.end_unix_ns - intervals.start_unix_ns).sum() == at[-1]
    np.testing.assert_array_equal(at[first][intervals.begun_by()] <= intervals.start_unix_ns, True)


def test_a_longer_gap_parts_neighbours() -> None:
    of = CounterSeries.of(np.zeros(3, np.int64), ns(0, 100, 170), ns(40, 110, 175), 60)
    assert of.follows.tolist() == [False, True, True]
    assert CounterSeries.of(
        np.zeros(2, np.int64), ns(0, 101), ns(40, 102), 60
    ).follows.tolist() == [False, False]
