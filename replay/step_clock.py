"""A step's time beyond its work: noise, a slower machine, stalls, the first step of a batch shape.

Pure.
"""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from replay.engine_config import EngineConfig

_NOISE_STEPS = 4096
_NEVER = float("inf")


class Stall(NamedTuple):
    """A time in which the engine stands still, whatever work it has."""

    at_s: float
    for_s: float
    in_full: bool = False
    """Whether the next step that begins takes all of this time longer, as an engine reports a
    stall. Otherwise the step waits for the end of the stall, and an idle engine loses nothing."""


def step_noise(config: EngineConfig, seed: str) -> list[float]:
    """Draw the factors of an engine's step times. They repeat after a few thousand steps.

    With quantiles, values between them are interpolated.
    """
    chance = random.Random(seed)
    quantiles = config.step_noise_quantiles
    if not quantiles:
        ratio = config.step_noise_ratio
        return [chance.lognormvariate(0.0, ratio) for _ in range(_NOISE_STEPS)]
    last = len(quantiles) - 1
    factors = []
    for _ in range(_NOISE_STEPS):
        place = min(max(chance.random() * len(quantiles) - 0.5, 0.0), float(last))
        low = int(place)
        high = min(low + 1, last)
        factors.append(quantiles[low] + (quantiles[high] - quantiles[low]) * (place - low))
    return factors


class StepClock:
    """The clock of one engine's steps.

    Args:
        noise: factors of the steps' work, repeated; from `step_noise`.
        stalls: when the engine stands still, in order of time; may be infinite.
        new_shape_s: additional duration of the first step of each batch shape; 0 for a warm engine.
    """

    def __init__(
        self, noise: Sequence[float], stalls: Iterable[Stall] = (), new_shape_s: float = 0.0
    ) -> None:
        self.noise = noise
        self.pace = 1.0
        """How much longer each step takes than on a machine that is well."""
        self._stalls = iter(stalls)
        self._next_stall = next(self._stalls, None)
        self._new_shape_s = new_shape_s
        self._shapes: set[tuple[int, int]] = set()

    @property
    def quiet_until(self) -> float:
        """Return when the next stall begins."""
        return _NEVER if self._next_stall is None else self._next_stall.at_s

    @property
    def cold(self) -> bool:
        """Return whether a step may be the first of its shape."""
        return self._new_shape_s > 0

    def scale(self, count: int) -> float:
        """Return the factor of a step's work."""
        return self.noise[count % len(self.noise)] * self.pace

    def stall_s(self, start: float, decodes: int, prefill_tokens: int) -> float:
        """Return how long a step that begins now stands still."""
        stall_s = whole_s = 0.0
        while self._next_stall is not None and self._next_stall.at_s <= start:
            stall = self._next_stall
            if stall.in_full:
                whole_s += stall.for_s
            else:
                stall_s = max(stall_s, stall.at_s + stall.for_s - start)
            self._next_stall = next(self._stalls, None)
        stall_s += whole_s
        if self._new_shape_s:
            # Kernels are chosen by batch size and chunk size, both rounded up.
            shape = (decodes.bit_length(), (prefill_tokens // 256).bit_length())
            if shape not in self._shapes:
                self._shapes.add(shape)
                stall_s += self._new_shape_s
        return stall_s
