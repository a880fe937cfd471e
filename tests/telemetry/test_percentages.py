import pytest

from telemetry.percentages import percent


@pytest.mark.parametrize(
    ("ratio", "decimals", "shown"),
    [
        (1.0, 1, "100.0%"), (1.0, 0, "100%"), (0.0, 1, "0.0%"), (-0.0, 1, "0.0%"),
        (0.9996, 1, "99.96%"), (0.99996, 1, "99.996%"), (0.9999999, 0, "99.99999%"),
        (0.0004, 1, "0.04%"), (0.0000004, 0, "0.00004%"), (-0.0004, 1, "-0.04%"),
        (1.0004, 1, "100.04%"), (0.5, 1, "50.0%"), (0.975, 2, "97.50%"), (0.123, 0, "12%"),
        (12.345, 0, "1,234%"), (1 - 1e-13, 1, "100.0%"),
    ],
)  # fmt: skip
def test_only_the_whole_is_100_percent_and_only_none_is_0(
    ratio: float, decimals: int, shown: str
) -> None:
    assert percent(ratio, decimals) == shown


def test_the_unit_can_be_apart() -> None:
    assert percent(0.9996, 0, " %") == "99.96 %"
