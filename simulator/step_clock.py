"""A step's time beyond its work: noise, a slower machine, stalls, the first step of a batch shape.

Pure. It also feeds the steps to the same fit that runs in a real engine, so that its coefficients,
error and lag are those of a real engine.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from tailspan_vllm.engine_core.step_model import StepModel as Fit

_NOISE_STEPS = 4096
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Stall:
    """A time in which the engine stands still, whatever work it has."""

    at_s: float
    for_s: float


class StepClock:
    """The clock of one engine's steps.

    Args:
        noise_ratio: spread of a step's time around its model's.
        seed: of the noise.
        stalls: when the engine stands still, in order of time; may be infinite.
        new_shape_s: additional duration of the first step of each batch shape; 0 for a warm engine.
    """

    def __init__(
        self, noise_ratio: float, seed: str, stalls: Iterable[Stall] = (), new_shape_s: float = 0.0
    ) -> None:
        noise = random.Random(seed)
        self.noise = [noise.lognormvariate(0.0, noise_ratio) for _ in range(_NOISE_STEPS)]
        self.pace = 1.0
        """How much longer each step takes than on a machine that is well."""
        self.fit = Fit()
        """Updated with each ended step."""
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
        return self.noise[count % _NOISE_STEPS] * self.pace

    def stall_s(self, start: float, decodes: int, prefill_tokens: int) -> float:
        """Return how long a step that begins now stands still."""
        stall_s = 0.0
        while self._next_stall is not None and self._next_stall.at_s <= start:
            stall_s = max(stall_s, self._next_stall.at_s + self._next_stall.for_s - start)
            self._next_stall = next(self._stalls, None)
        if self._new_shape_s:
            # Kernels are chosen by batch size and chunk size, both rounded up.
            shape = (decodes.bit_length(), (prefill_tokens // 256).bit_length())
            if shape not in self._shapes:
                self._shapes.add(shape)
                stall_s += self._new_shape_s
        return stall_s
