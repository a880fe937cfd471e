"""What an engine core and its workers measure during their own start."""

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
    """The instants of an engine core's start in monotonic seconds, and its workers' durations.

    Attributes:
        process: when the engine core's process began.
        executor: when the engine core began to start its workers.
        loaded: when the workers had loaded the weights.
        ready: when the KV cache was allocated and the model was warm.
        worker: the longest time of any worker, for each stage; None if no worker sent a report.
    """

    process: float
    executor: float
    loaded: float
    ready: float
    worker: WorkerStart | None


@dataclass(slots=True)
class StartRecord:
    """Collects the `EngineInstants` of the engine core that runs in this process."""

    process: float | None = None
    executor: float | None = None
    loaded: float | None = None
    ready: float | None = None
    workers: list[WorkerStart] = field(default_factory=list)

    def add(self, worker: WorkerStart) -> None:
        """Add a worker's report, unless it is not valid or there are too many."""
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
