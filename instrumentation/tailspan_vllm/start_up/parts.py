"""Divides the time from the start of the first process until the server was ready. Pure.

The parts are the gaps between ascending instants. Two of these gaps are divided further by the
workers' times.
"""

from collections.abc import Iterator
from itertools import pairwise

from tailspan_vllm import names
from tailspan_vllm.start_up.instants import EngineInstants, WorkerStart
from tailspan_vllm.start_up.process import FirstProcess


def parts_of(
    first: FirstProcess, engine: EngineInstants, served: float | None
) -> dict[str, float] | None:
    """Maps attribute names to the parts in seconds, or None if the instants are not in order.

    `served` is when the HTTP server was ready, in monotonic seconds, or None without an HTTP
    server.
    """
    own_process = engine.process if engine.process > first.plugin else engine.executor
    at = (first.began, first.plugin, own_process, engine.executor, engine.loaded, engine.ready)
    if list(at) != sorted(at):
        return None
    imports, config, process, load, warm = (after - before for before, after in pairwise(at))
    parts = {
        names.START_IMPORTS: imports,
        names.START_CONFIG: config,
        names.START_ENGINE_PROCESS: process,
    }
    if engine.worker is None:
        parts[names.START_UNSPLIT] = load + warm
    else:
        parts |= dict(_divided(load, warm, engine.worker))
    if served is not None:
        # If there are several API servers, one of them can be ready before this engine.
        parts[names.START_SERVER] = max(0.0, served - engine.ready)
    return parts


def _divided(load: float, warm: float, worker: WorkerStart) -> Iterator[tuple[str, float]]:
    device = min(worker.device_s, load)
    weights = min(worker.weights_s, load - device)
    compiling = min(worker.compile_s, warm)
    warm_up = min(worker.warm_up_s, warm - compiling)
    yield names.START_WORKERS, load - device - weights
    yield names.START_DEVICE, device
    yield names.START_WEIGHTS, weights
    yield names.START_COMPILE, compiling
    yield names.START_WARM_UP, warm_up
    yield names.START_KV_CACHE, warm - compiling - warm_up
