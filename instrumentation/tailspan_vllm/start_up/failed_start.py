"""Divides the time from the beginning of a start to its failure into parts. Pure.

The parts are the gaps between ascending instants. The start failed in the last part.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from tailspan_vllm import names
from tailspan_vllm.start_up.process import FirstProcess
from tailspan_vllm.start_up.progress import StartProgress, StartStage

PART_AFTER: Final = {
    StartStage.EXECUTOR: names.START_WORKERS,
    StartStage.WORKER: names.START_DEVICE,
    StartStage.DEVICE: names.START_WEIGHTS,
    StartStage.WEIGHTS: names.START_KV_CACHE,
    StartStage.PROFILED: names.START_WARM_UP,
}
"""The part that follows each stage. The last two parts include compilation."""

ENDED: Final = "exit"
"""The reason of a failure if no method of the start raised an exception."""


class FailedStart(NamedTuple):
    """A failed start. `parts` maps attribute names to seconds. `reached` is the part in which the
    start failed. `reason` is the exception's class or `ENDED`."""

    engine: int
    parts: dict[str, float]
    reached: str
    reason: str


def failed_starts(
    first: FirstProcess, reports: Sequence[StartProgress], ended: float
) -> list[FailedStart]:
    """The engines that began to start their workers and did not become ready.

    `ended` is the time at which the first process ended, in monotonic seconds.
    """
    known = [each for each in reports if math.isfinite(each.at)]
    engines = sorted({each.engine for each in known})
    found = (
        _failed(first, [each for each in known if each.engine == engine], ended)
        for engine in engines
    )
    return [each for each in found if each is not None]


def _failed(
    first: FirstProcess, reports: Sequence[StartProgress], ended: float
) -> FailedStart | None:
    at = {each.stage: each.at for each in reports}
    if StartStage.READY in at or StartStage.EXECUTOR not in at or StartStage.PROCESS not in at:
        return None
    errors = sorted((each.at, each.error) for each in reports if each.stage is StartStage.FAILED)
    end, reason = errors[0] if errors else (ended, ENDED)
    own = (
        at[StartStage.PROCESS] if at[StartStage.PROCESS] > first.plugin else at[StartStage.EXECUTOR]
    )
    instants = {
        names.START_IMPORTS: first.began,
        names.START_CONFIG: first.plugin,
        names.START_ENGINE_PROCESS: own,
        **_workers(at[StartStage.EXECUTOR], reports),
    }
    ordered = [*instants.values(), end]
    if ordered != sorted(ordered):
        return None
    parts = {
        name: after - before
        for name, (before, after) in zip(instants, pairwise(ordered), strict=True)
    }
    return FailedStart(reports[0].engine, parts, list(parts)[-1], reason or ENDED)


def _workers(executor: float, reports: Iterable[StartProgress]) -> Mapping[str, float]:
    """Return when each part began. A stage is complete when all reporting workers have completed
    it."""
    by_stage: dict[StartStage, dict[int, float]] = {}
    for each in reports:
        by_stage.setdefault(each.stage, {})[each.process] = each.at
    began = {PART_AFTER[StartStage.EXECUTOR]: executor}
    workers = by_stage.get(StartStage.WORKER, {}).keys()
    for stage in (StartStage.WORKER, StartStage.DEVICE, StartStage.WEIGHTS, StartStage.PROFILED):
        done = by_stage.get(stage, {})
        if not workers or workers - done.keys():
            break
        began[PART_AFTER[stage]] = max(done.values())
    return began
