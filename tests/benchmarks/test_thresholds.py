import pytest

from benchmarks._diagnosis_constants import NumericConstant, constants, constants_in
from benchmarks.thresholds import DOUBLED, HALVED, LOWEST, changed, changed_value, table
from diagnosis import explain
from diagnosis.latency import tail

SOURCE = """
A: Final = 0.5
B, C = 2, 3.0
D = E = 7
NAME: Final = "x"
YES: Final = True
NOTHING: Final = 0
SHARES: Final = (0.1, 0.2)
PAIR = (1, 2)
def f():
    INNER = 3
"""


def test_only_the_numbers_that_a_module_defines_are_found() -> None:
    found = {each.name: each.value for each in constants_in("m", SOURCE)}
    assert found == {"A": 0.5, "B": 2, "C": 3.0, "D": 7, "E": 7}


@pytest.mark.parametrize(
    ("value", "change", "expected"),
    [
        (20, HALVED, 10),
        (1, HALVED, 1),
        (0.4, DOUBLED, 0.8),
        (0.9, DOUBLED, 0.95),
        (1.5, DOUBLED, 3.0),
        (1.5, LOWEST, 0.0),
    ],
)
def test_a_share_stays_a_share_and_a_number_stays_positive(
    value: float, change: str, expected: float
) -> None:
    assert changed_value(value, change) == pytest.approx(expected)


def test_a_constant_changes_where_it_is_imported_and_is_restored() -> None:
    (constant,) = (each for each in constants() if each.name == "MIN_TAIL_REQUESTS")
    before = tail.MIN_TAIL_REQUESTS
    with changed(constant, DOUBLED):
        found = {vars(module)["MIN_TAIL_REQUESTS"] for module in (tail, explain)}
    assert found == {2 * before}
    assert {vars(module)["MIN_TAIL_REQUESTS"] for module in (tail, explain)} == {before}


def test_the_constants_with_the_largest_effect_come_first() -> None:
    quiet, loud = (
        NumericConstant("diagnosis.a", "QUIET", 1),
        NumericConstant("diagnosis.b", "LOUD", 0.5),
    )
    lines = table([quiet, loud], {(loud, DOUBLED): 3}, {(loud, HALVED): 1})
    assert lines[1].split() == ["b.LOUD", "0.5", "-0", "+1", "-3", "+0"]
    assert lines[2].split() == ["a.QUIET", "1", "-0", "+0", "-0", "+0"]
