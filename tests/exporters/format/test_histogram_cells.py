from bisect import bisect_left
from itertools import accumulate
from math import frexp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.definitions.series import HISTOGRAMS
from exporters.definitions.series_types import LatencyHistogram
from exporters.format.histogram_cells import GROWTH, SCHEMA, HistogramCells, cells, matrix
from exporters.format.histograms import distribution, observed
from tests.exporters.one_by_one import observe

of_each = pytest.mark.parametrize("of", [HISTOGRAMS[0], HISTOGRAMS[5]], ids=lambda of: of.field)
"""Time to first token and queue time: the two lowest bounds."""
durations = st.one_of(st.floats(0, 5_000), st.sampled_from([0.0, 0.001, 0.3, 0.5, 1.0, 2.0]))


def _index(value_s: float) -> int:
    """Return a value's bucket, computed like Prometheus' client from bounds in [1/2, 1)."""
    fraction, exponent = frexp(value_s)
    bounds = [2 ** (place / 2**SCHEMA - 1) for place in range(2**SCHEMA)]
    return bisect_left(bounds, fraction) + (exponent - 1) * 2**SCHEMA


def _native(of: HistogramCells, values_s: list[float]) -> dict[int, int]:
    """Return the expected native buckets. The index before the first index is that of the zero
    bucket."""
    last = of.first + len(of.begins) - 2
    held: dict[int, int] = {}
    for value_s in values_s:
        index = of.first - 1 if value_s <= of.zero_threshold_s else min(_index(value_s), last)
        held[index] = held.get(index, 0) + 1
    return held


@of_each
@given(values_s=st.lists(durations, min_size=1, max_size=30))
def test_buckets_equal_those_of_single_counts(of: LatencyHistogram, values_s: list[float]) -> None:
    held = distribution(of)
    for value_s in values_s:
        observe(held, value_s)
    counts = matrix([held.counts])
    classic = [0] * (len(of.bounds_s) + 1)
    for value_s in values_s:
        classic[bisect_left(of.bounds_s, value_s)] += 1
    assert held.cells.cumulative(counts)[0].tolist() == [*accumulate(classic)]
    native = held.cells.native(counts)[0].tolist()
    first = held.cells.first - 1
    values = {first + place: count for place, count in enumerate(native) if count}
    assert values == _native(held.cells, values_s)


@given(st.lists(st.tuples(st.integers(0, 4), durations), max_size=30))
def test_a_column_is_counted_as_its_values_are(values: list[tuple[int, float]]) -> None:
    one = [distribution(HISTOGRAMS[0]) for _ in range(5)]
    many = [distribution(HISTOGRAMS[0]) for _ in range(5)]
    for number, (place, value_s) in enumerate(values):
        observe(one[place], value_s, (f"{number:032x}", value_s, 1.0))
    places = np.array([place for place, _ in values], dtype=np.int64)
    values_s = np.array([value_s for _, value_s in values], dtype=np.float64)
    for each in observed(many[0].cells, places, values_s):
        many[each.at].add(each)
        for bucket, number in each.latest.items():
            many[each.at].exemplars[bucket] = (f"{number:032x}", values[number][1], 1.0)
    for alone, together in zip(one, many, strict=True):
        assert together.counts == alone.counts
        assert together.sum_s == pytest.approx(alone.sum_s)
        assert together.exemplars == alone.exemplars


@of_each
def test_their_number_is_bounded(of: LatencyHistogram) -> None:
    made = cells(of.bounds_s)
    assert len(made.buckets) <= 230
    assert len(made.begins) <= 190
    assert made.bounds_s[-1] >= of.bounds_s[-1]
    assert made.zero_threshold_s <= of.bounds_s[0]
    # Native bounds are exact powers, and the stored bounds are doubles.
    bound_s = made.bounds_s[made.begins[1] - 1]
    assert bound_s * GROWTH ** len(made.begins[2:]) == pytest.approx(made.bounds_s[-1])


def test_a_copy_does_not_change() -> None:
    held = distribution(HISTOGRAMS[0])
    observe(held, 0.3, ("ab" * 16, 0.3, 1.0))
    copy = held.copy()
    observe(held, 0.3, ("cd" * 16, 0.3, 2.0))
    assert sum(copy.counts) == 1
    assert [trace_id for trace_id, _, _ in copy.exemplars.values()] == ["ab" * 16]
