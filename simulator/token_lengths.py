"""Distributions of prompt and answer lengths with given quantiles.

Pure. Between two quantiles, the logarithm of the length is linear in the normal score. Beyond the
outermost quantiles, it continues with the same slope. This is a piecewise lognormal distribution:
monotone, with smooth tails.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Mapping
from statistics import NormalDist

_NORMAL = NormalDist()


class Lengths:
    """Lengths in tokens with the given quantiles.

    Args:
        quantiles: length in tokens by quantile in (0, 1). At least two; a higher quantile needs a
            larger length.
        longest: the maximum length.
    """

    def __init__(self, quantiles: Mapping[float, float], longest: int) -> None:
        points = sorted(quantiles.items())
        lengths = [length for _, length in points]
        if len(points) < 2 or lengths != sorted(set(lengths)) or lengths[0] < 1:
            raise ValueError(
                f"quantiles: {dict(points)}; allowed: two or more, lengths of 1 or more that "
                "rise with the quantile"
            )
        self._scores = [_NORMAL.inv_cdf(quantile) for quantile, _ in points]
        self._logs = [math.log(length) for length in lengths]
        self._longest = longest

    def draw(self, chance: random.Random) -> int:
        """Draw a length; `chance` is the source of randomness."""
        return self._at_score(chance.gauss(0.0, 1.0))

    def quantile(self, q: float) -> int:
        """Return the `q`-quantile of the length in tokens, with `q` in (0, 1)."""
        return self._at_score(_NORMAL.inv_cdf(q))

    def _at_score(self, score: float) -> int:
        scores, logs = self._scores, self._logs
        piece = min(max(bisect_right(scores, score) - 1, 0), len(scores) - 2)
        rise = (logs[piece + 1] - logs[piece]) / (scores[piece + 1] - scores[piece])
        length = math.exp(logs[piece] + rise * (score - scores[piece]))
        return min(max(round(length), 1), self._longest)


PROMPTS = Lengths({0.10: 207, 0.50: 1020, 0.90: 2734, 0.99: 4142}, longest=8192)
ANSWERS = Lengths({0.10: 54, 0.50: 129, 0.90: 424, 0.99: 601}, longest=1024)
# Both distributions are quantiles of the Azure LLM inference trace 2023, conversation service
# (Azure/AzurePublicDataset; Patel et al., "Splitwise", ISCA 2024).
