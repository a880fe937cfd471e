import json

from hypothesis import given
from hypothesis import strategies as st

from cli.questions.short_answer import dumped, shortened

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=60,
)


@given(VALUES, st.integers(50, 400))
def test_a_long_result_is_shortened_by_its_lists(value: object, most: int) -> None:
    found = shortened(value, most)
    assert len(dumped(found)) <= max(most, len(dumped(shortened(value, 0))))
    json.loads(dumped(found))


def test_the_number_of_omitted_elements_is_stated() -> None:
    found = shortened({"rows": [{"n": number} for number in range(1_000)], "a": [1, 2]}, 200)
    rows = found["rows"]
    assert rows[:2] == [{"n": 0}, {"n": 1}]
    assert len(rows) - 1 + rows[-1]["omitted"] == 1_000
    assert found["a"] == [1, 2]


def test_numbers_are_rounded_except_times_and_attainments() -> None:
    assert shortened([0.123456789, 1763634000.123, 0.99996, 12.0, 7]) == [
        0.123457,
        1763634000.0,
        0.99996,
        12.0,
        7,
    ]
