"""Distributions of prompt and output lengths, given by quantiles. Pure.

Between two quantiles, the logarithm of the length is linear in the quantile's standard normal
score. Beyond the outermost quantiles, the slope is the same as in the nearest interval. The result
is piecewise lognormal.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Mapping
from statistics import NormalDist

_NORMAL = NormalDist()


class Lengths:
    """A distribution of lengths in tokens.

    Args:
        quantiles: maps at least two quantiles in (0, 1) to lengths. The lengths increase with the
            quantile.
        longest: the maximum length.
    """

    def __init__(self, quantiles: Mapping[float, float], longest: int) -> None:
        points = sorted(quantiles.items())
        lengths = [length for _, length in points]
        if len(points) < 2 or lengths != sorted(set(lengths)) or lengths[0] < 1:
            raise ValueError(
                f"quantiles: {dict(points)}; allowed: two or more, with lengths of 1 or more that"
                " increase with the quantile"
            )
        self._scores = [_NORMAL.inv_cdf(quantile) for quantile, _ in points]
        self._logs = [math.log(length) for length in lengths]
        self._longest = longest

    def draw(self, chance: random.Random) -> int:
        """A random length."""
        return self._at_score(chance.gauss(0.0, 1.0))

    def quantile(self, q: float) -> int:
        """The `q`-quantile, with `q` in (0, 1)."""
        return self._at_score(_NORMAL.inv_cdf(q))

    def _at_score(self, score: float) -> int:
        scores, logs = self._scores, self._logs
        piece = min(max(bisect_right(scores, score) - 1, 0), len(scores) - 2)
        rise = (logs[piece + 1] - logs[piece]) / (scores[piece + 1] - scores[piece])
        length = math.exp(logs[piece] + rise * (score - scores[piece]))
        return min(max(round(length), 1), self._longest)


PROMPTS = Lengths({0.10: 207, 0.50: 1020, 0.90: 2734, 0.99: 4142}, longest=8192)
ANSWERS = Lengths({0.10: 54, 0.50: 129, 0.90: 424, 0.99: 601}, longest=1024)
# Source of the quantiles: Azure LLM inference trace 2023, conversation service
# (Azure/AzurePublicDataset; Patel et al., "Splitwise", ISCA 2024).
