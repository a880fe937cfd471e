import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.over_time import time_bins

SECOND_NS = 1_000_000_000


@given(st.integers(0, 2**62), st.integers(1, 400 * 86_400 * SECOND_NS), st.integers(0, 10_000_000))
def test_bins_cover_the_window_and_no_more(start: int, length: int, requests: int) -> None:
    bins = time_bins.choose(start, start + length, requests)
    end = bins.first_unix_ns + bins.count * bins.width_ns
    assert bins.first_unix_ns <= start < bins.first_unix_ns + bins.width_ns
    assert end - bins.width_ns < start + length <= end
    assert bins.count <= time_bins.MAX_BINS + 2


def test_bins_stay_where_they_are_as_the_window_moves() -> None:
    """The edges are multiples of the width, so that the bars of a live page do not move."""
    hour = 3600 * SECOND_NS
    for second in range(30):
        start = 1_763_600_000 * SECOND_NS + second * SECOND_NS
        bins = time_bins.choose(start, start + hour, 20_000)
        assert bins.width_s == 120
        assert bins.first_unix_ns % bins.width_ns == 0


def test_bins_are_wide_enough_for_a_p99_where_there_are_requests() -> None:
    hour = 3600 * SECOND_NS
    widths = {n: time_bins.choose(0, hour, n).width_s for n in (0, 1000, 20_000, 1_000_000)}
    assert widths == {0: 120, 1000: 120, 20_000: 120, 1_000_000: 30}


def test_an_instant_lies_in_its_bin() -> None:
    bins = time_bins.bins_of_width(0, 10 * SECOND_NS, SECOND_NS)
    at = np.array([0, SECOND_NS - 1, SECOND_NS, 10 * SECOND_NS - 1])
    assert bins.index(at).tolist() == [0, 0, 1, 9]
