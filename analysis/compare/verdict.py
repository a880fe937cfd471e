"""The verdict on a change, from its estimate, its confidence interval and a margin. Pure."""

from enum import StrEnum
from math import expm1
from typing import Final

from analysis.compare.intervals import Interval

MARGIN: Final = 0.05
"""The smallest change that is worth acting on. It is relative to the latency before the change at
the same mix and load."""


class CompareVerdict(StrEnum):
    """Whether a latency became worse or better at the same mix and load."""

    WORSE = "worse"
    BETTER = "better"
    NO_WORSE = "no_worse"
    UNDECIDED = "undecided"


def verdict_of(ratio: float, found: Interval, margin: float) -> CompareVerdict:
    """The verdict on a change. A latency cannot decrease by more than 100 %, so it is never better
    with a margin of 1 or more.

    Args:
        ratio: the estimate of ln(percentile after the change / percentile before the change).
        found: the confidence interval of `ratio`.
    """
    change = expm1(ratio)
    if found.low > 0 and change > margin:
        return CompareVerdict.WORSE
    if found.high < 0 and change < -margin:
        return CompareVerdict.BETTER
    if expm1(found.high) < margin:
        return CompareVerdict.NO_WORSE
    return CompareVerdict.UNDECIDED
