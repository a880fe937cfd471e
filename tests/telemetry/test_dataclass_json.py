from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry import dataclass_json


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Part:
    name: str
    seconds: float | None = None


@dataclass(frozen=True)
class Whole:
    colour: Colour
    count: int
    parts: Sequence[Part] = ()
    labels: Mapping[str, str | None] = field(default_factory=dict)
    ends: tuple[float, float] = (0.0, 1.0)
    exact: bool = True


PARTS = st.builds(Part, st.text(), st.none() | st.floats(allow_nan=False, allow_infinity=False))
WHOLES = st.builds(
    Whole,
    st.sampled_from(Colour),
    st.integers(),
    st.lists(PARTS, max_size=3).map(tuple),
    st.dictionaries(st.text(), st.none() | st.text(), max_size=3),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
    st.booleans(),
)


@given(WHOLES)
def test_read_is_the_inverse_of_write(whole: Whole) -> None:
    assert dataclass_json.read(Whole, dataclass_json.write(whole)) == whole


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    whole = Whole(Colour.RED, np.int64(3), ends=(np.float64(0.5), np.float32(1.0)))  # type: ignore[arg-type]
    assert dataclass_json.read(Whole, dataclass_json.write(whole)).count == 3


def test_a_number_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dataclass_json.write(Part("a", inf))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", r"Whole is \[\], of type list; allowed: dict"),
        ('{"colour": "red"}', "Whole.count is missing"),
        ('{"colour": "green", "count": 1}', "'green' is not a valid Colour"),
        ('{"colour": "red", "count": true}', "Whole.count is true, of type bool; allowed: int"),
        ('{"colour": "red", "count": 1.5}', "Whole.count is 1.5"),
        ('{"colour": "red", "count": 1, "size": 2}', "Whole.size is not a field of Whole"),
        ('{"colour": "red", "count": 1, "ends": [1]}', "Whole.ends has 1 values; allowed: 2"),
        (
            '{"colour": "red", "count": 1, "parts": [{"name": "a", "seconds": "b"}]}',
            r'Whole.parts\[0\].seconds is "b", of type str; allowed: float',
        ),
        ('{"colour": "red", "count": NaN}', "contains NaN, which is not a number"),
    ],
)
def test_what_the_dataclass_does_not_declare_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        dataclass_json.read(Whole, text)
