"""Compute how step durations deviate from the step model: noise, pace, stalls, new batch shapes.

Pure.
"""

import random
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from replay.engine_config import EngineConfig

NOISE_STEPS: Final = 4096
_NEVER = float("inf")


class Stall(NamedTuple):
    """A time range in which the engine is stopped, even if it has work."""

    at_s: float
    for_s: float
    in_full: bool = False
    """If True, the whole duration of the stall is added to the next step, as for stalls that a real
    engine reported. If False, a step that begins during the stall waits until the stall ends. In
    this case, a stall has no effect if no step begins during it."""


def step_noise(config: EngineConfig, seed: str) -> list[float]:
    """Return random factors for the first few thousand steps of an engine. Later steps repeat these
    factors.

    If the configuration has noise quantiles, the factors are interpolated between these quantiles.
    """
    chance = random.Random(seed)
    quantiles = config.step_noise_quantiles
    if not quantiles:
        ratio = config.step_noise_ratio
        return [chance.lognormvariate(0.0, ratio) for _ in range(NOISE_STEPS)]
    last = len(quantiles) - 1
    drawn = np.array([chance.random() for _ in range(NOISE_STEPS)])
    place = np.clip(drawn * len(quantiles) - 0.5, 0.0, float(last))
    low = place.astype(np.int64)
    values = np.array(quantiles)
    at_low, at_high = values[low], values[np.minimum(low + 1, last)]
    factors: list[float] = (at_low + (at_high - at_low) * (place - low)).tolist()
    return factors


class StepClock:
    """The clock of one engine's steps.

    Args:
        noise: factors for the durations of steps, from `step_noise`, used cyclically.
        stalls: the engine's stalls in order of time, possibly infinite.
        new_shape_s: additional duration of the first step of each batch shape. It is 0 for a warm
            engine.
    """

    def __init__(
        self, noise: Sequence[float], stalls: Iterable[Stall] = (), new_shape_s: float = 0.0
    ) -> None:
        self.noise = noise
        self.pace = 1.0
        """Factor for step durations; above 1 for a slow machine."""
        self.slowdown_per_sequence = 0.0
        """Relative increase of a step's duration per sequence. The value is 0 in a replay, because
        the fitted step model does not have this increase."""
        self._stalls = iter(stalls)
        self._next_stall = next(self._stalls, None)
        self._new_shape_s = new_shape_s
        self._shapes: set[tuple[int, int]] = set()

    @property
    def quiet_until(self) -> float:
        """Start of the next stall."""
        return _NEVER if self._next_stall is None else self._next_stall.at_s

    @property
    def cold(self) -> bool:
        """Whether the first step of a batch shape takes longer than later steps of this shape."""
        return self._new_shape_s > 0

    def scale(self, count: int, sequences: int) -> float:
        """Return the factor for the duration of step `count` with this number of sequences."""
        return (
            self.noise[count % len(self.noise)]
            * self.pace
            * (1.0 + self.slowdown_per_sequence * sequences)
        )

    def stall_s(self, start: float, decodes: int, prefill_tokens: int) -> float:
        """Return the seconds of stall in a step that begins at `start`."""
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
            # A batch shape is the batch size and the chunk size, both rounded up.
            shape = (decodes.bit_length(), (prefill_tokens // 256).bit_length())
            if shape not in self._shapes:
                self._shapes.add(shape)
                stall_s += self._new_shape_s
        return stall_s
