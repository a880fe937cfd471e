from math import log1p

import pytest

from analysis.compare.intervals import Interval
from analysis.compare.verdict import verdict_of


@pytest.mark.parametrize(
    ("low", "middle", "high", "verdict"),
    [
        (0.02, 0.10, 0.18, "worse"),
        (0.01, 0.04, 0.07, "undecided"),  # excludes 0, but the estimate is within the margin
        (0.01, 0.02, 0.04, "no_worse"),
        (-0.03, 0.01, 0.045, "no_worse"),
        (-0.18, -0.10, -0.02, "better"),
        (-0.03, 0.02, 0.07, "undecided"),
        (-0.20, 0.10, 0.40, "undecided"),
        (-0.06, -0.04, -0.02, "no_worse"),
        (-0.06, -0.049, -0.02, "no_worse"),  # decreases by less than the margin
        (-0.07, -0.051, -0.02, "better"),
    ],
)
def test_the_margin_and_the_interval_decide(
    low: float, middle: float, high: float, verdict: str
) -> None:
    found = Interval(log1p(low), log1p(high))
    assert verdict_of(log1p(middle), found, 0.05).value == verdict
