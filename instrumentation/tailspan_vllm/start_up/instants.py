"""Defines what an engine core and its workers measure during their own start."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

WORKERS_LIMIT = 1024


class WorkerStart(NamedTuple):
    """How long each stage of one worker's start took, in seconds."""

    device_s: float = 0.0
    """Initialisation of the device and of the communication between workers."""
    weights_s: float = 0.0
    compile_s: float = 0.0
    warm_up_s: float = 0.0
    """Warm-up and capture of CUDA graphs, without compilation."""


class EngineInstants(NamedTuple):
    """Monotonic seconds. `worker` has the longest time of any worker for each stage.

    Attributes:
        executor: when the engine core began to start its workers.
        loaded: when the workers had loaded the weights.
        ready: when the KV cache was allocated and the model was warm.
    """

    process: float
    executor: float
    loaded: float
    ready: float
    worker: WorkerStart | None


@dataclass(slots=True)
class StartRecord:
    """Collects the instants of the engine core that runs in this process."""

    process: float | None = None
    executor: float | None = None
    loaded: float | None = None
    ready: float | None = None
    workers: list[WorkerStart] = field(default_factory=list)

    def add(self, worker: WorkerStart) -> None:
        """Add a report. Invalid reports, and reports above the limit, are ignored."""
        if len(self.workers) < WORKERS_LIMIT and all(map(_is_duration, worker)):
            self.workers.append(worker)

    def instants(self) -> EngineInstants | None:
        """The instants, or None if one was not recorded."""
        known = (self.process, self.executor, self.loaded, self.ready)
        if any(each is None for each in known):
            return None
        slowest = WorkerStart(*map(max, zip(*self.workers, strict=True))) if self.workers else None
        return EngineInstants(*known, slowest)  # type: ignore[arg-type]  # None is excluded above


def _is_duration(value: float) -> bool:
    return math.isfinite(value) and value >= 0
