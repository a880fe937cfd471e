import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailspan_vllm.engine_core.range_max import BLOCK, RangeMax


@given(st.data())
def test_the_maximum_of_a_range_is_that_of_its_values(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 400))
    values = [float(each) for each in data.draw(st.binary(min_size=size, max_size=size))]
    series = RangeMax()
    for value in values:
        series.append(value)
    forgotten = data.draw(st.integers(0, size - 1))
    series.forget(forgotten)
    kept = [*values[forgotten:], 3.0, 7.0]
    series.append(3.0)
    series.append(7.0)
    assert [series[at] for at in range(len(series))] == kept
    begin = data.draw(st.integers(0, len(kept) - 1))
    end = data.draw(st.integers(begin + 1, len(kept)))
    assert series.greatest(begin, end) == max(kept[begin:end])


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_stretch_of_whole_blocks_alone(blocks: int) -> None:
    series = RangeMax()
    for value in range(3 * BLOCK):
        series.append(value)
    end = (1 + blocks) * BLOCK
    assert series.greatest(BLOCK, end) == end - 1
