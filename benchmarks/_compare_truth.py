"""The measured change between two windows with the same arrivals, and the check of a verdict.

The mix of requests is the same, so the difference of a percentile is the effect of the change. This
effect includes the load that the change causes. For example, on a slower server, more requests run
at the same time.
"""

from dataclasses import dataclass
from math import expm1, log, log1p
from typing import Final

import numpy as np

from analysis.compare.intervals import block_s, reach_of, spread_of
from analysis.compare.parts import percentile
from analysis.compare.verdict import CompareVerdict
from replay.arrivals import FloatArray

DRAWS: Final = 400
RIGHT, MISSED, WRONG, UNCLEAR = "right", "missed", "WRONG", "unclear"


@dataclass(frozen=True, slots=True)
class WindowLatencies:
    """The requests of a window for which one latency, such as TTFT, is known."""

    at_s: FloatArray
    """(n,) when each request was received, in seconds since the window began."""
    value_s: FloatArray
    """(n,) latency in seconds."""


@dataclass(frozen=True, slots=True)
class TrueChange:
    """The relative change of a percentile (after / before − 1), with a 95 % interval."""

    ratio: float
    low: float
    high: float

    def expects(self, margin: float) -> CompareVerdict | None:
        """The expected verdict, or None if the margin lies within the confidence interval."""
        limit = expm1(-log1p(margin))
        if self.low > margin:
            return CompareVerdict.WORSE
        if self.high < limit:
            return CompareVerdict.BETTER
        return CompareVerdict.NO_WORSE if limit < self.low and self.high < margin else None

    def judge(self, verdict: CompareVerdict, margin: float) -> str:
        """Return the word for a verdict: right, wrong, missed a change, or not decidable."""
        expected = self.expects(margin)
        contradicted = {
            CompareVerdict.WORSE: self.high < margin,
            CompareVerdict.BETTER: self.low > expm1(-log1p(margin)),
            CompareVerdict.NO_WORSE: self.low > margin,
        }
        if contradicted.get(verdict, False):
            return WRONG
        if expected in (CompareVerdict.WORSE, CompareVerdict.BETTER):
            return RIGHT if verdict is expected else MISSED
        return UNCLEAR if expected is None else RIGHT


def truth_of(
    before: WindowLatencies, after: WindowLatencies, q: float, seconds: float, seed: int = 0
) -> TrueChange:
    """The measured change of a percentile q in (0, 1).

    The confidence interval comes from resampled blocks of time, which are the same in both windows.
    """
    length_s = block_s(seconds)
    number = max(1, round(seconds / length_s))
    sides = [
        [each.value_s[_block(each.at_s, length_s, number) == place] for place in range(number)]
        for each in (before, after)
    ]
    chance = np.random.default_rng(seed)
    logs = np.full(DRAWS, np.nan)
    for draw in range(DRAWS):
        places = chance.integers(0, number, number)
        drawn = [np.concatenate([side[place] for place in places]) for side in sides]
        if all(each.size for each in drawn):
            logs[draw] = log(percentile(drawn[1], q) / percentile(drawn[0], q))
    middle = log(percentile(after.value_s, q) / percentile(before.value_s, q))
    half = float(spread_of(logs)) * reach_of(number, looks=False)
    return TrueChange(expm1(middle), expm1(middle - half), expm1(middle + half))


def _block(at_s: FloatArray, length_s: float, number: int) -> np.ndarray:
    return np.clip(np.floor(at_s / length_s), 0, number - 1)
