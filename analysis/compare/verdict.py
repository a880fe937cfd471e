"""The verdict on a change, from its estimate, its confidence interval and a margin. Pure."""

from enum import StrEnum
from math import log1p
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
    """The verdict on a change.

    Args:
        ratio: the estimate of ln(percentile after the change / percentile before the change).
        found: the confidence interval of `ratio`.
    """
    limit = log1p(margin)
    if found.low > 0 and ratio > limit:
        return CompareVerdict.WORSE
    if found.high < 0 and ratio < -limit:
        return CompareVerdict.BETTER
    if found.high < limit:
        return CompareVerdict.NO_WORSE
    return CompareVerdict.UNDECIDED
