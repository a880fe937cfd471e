"""The hooks that time a start: wrappers around three methods of the engine core and its workers.

If one of these private methods is missing, the parts stay unknown, and one log line names the
method.

Source: vllm/v1/engine/core.py, vllm/v1/executor/abstract.py, vllm/v1/worker/worker_base.py and
gpu_worker.py, 0.12 to 0.33.
"""

import multiprocessing
import sys
import time
from contextlib import suppress
from typing import Any

from tailspan_vllm import guard
from tailspan_vllm.guard import Arguments, Keywords
from tailspan_vllm.start_up.instants import StartRecord, WorkerStart
from tailspan_vllm.start_up.process import this_process_began
from tailspan_vllm.start_up.progress import StartStage, note
from tailspan_vllm.start_up.worker_reports import WorkerReports, send_report

RECORD = StartRecord()

WORKER_PROCESSES = ("VllmWorker", "Worker", "RayWorker")
_TIMED = ("load_model", "determine_available_memory", "compile_or_warm_up_model")
_COMPLETES = {"load_model": StartStage.WEIGHTS, "determine_available_memory": StartStage.PROFILED}
_NOTED = "_tailspan_noted"


def install(token: str) -> list[str]:
    """Wrap the methods of vLLM. Return the methods that this vLLM lacks."""
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.abstract import Executor
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    return install_on(Executor, EngineCore, WorkerWrapperBase, token, RECORD)


def install_in_worker(token: str) -> list[str]:
    """Wrap the methods of vLLM in a worker process. See `install`."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    return install_on(None, None, WorkerWrapperBase, token, RECORD)


def install_on(
    executor: Any, engine_core: Any, worker: Any, token: str, record: StartRecord
) -> list[str]:
    """Wrap the methods of these classes. A class is None if it does not run in this process."""
    hooks = _StartHooks(token, record)
    missing: list[str] = []
    for owner, name, wrap in (
        (executor, "__init__", hooks.executor),
        (engine_core, "_initialize_kv_caches", hooks.kv_caches),
        (worker, "init_device", hooks.device),
    ):
        if owner is None:
            continue
        original = getattr(owner, name, None)
        if callable(original):
            setattr(owner, name, wrap(original))
        else:
            missing.append(f"{owner.__name__}.{name}")
    return missing


class _StartHooks:
    def __init__(self, token: str, record: StartRecord) -> None:
        self._token = token
        self._record = record
        self._reports: WorkerReports | None = None
        self._hooks = guard.Hooks("parts of a start")

    def executor(self, original: Any) -> Any:
        """Wrap the executor's `__init__`, which starts the workers and loads the weights."""

        def before(args: Arguments, kwargs: Keywords) -> None:
            record, config = self._record, _config_of(args, kwargs)
            record.executor, record.process = time.monotonic(), this_process_began()
            if record.process is not None:
                note(self._token, config, StartStage.PROCESS, record.process)
            note(self._token, config, StartStage.EXECUTOR, record.executor)
            if sys.platform == "linux":
                self._reports = WorkerReports(self._token)

        def after(_: None, result: Any, args: Arguments, kwargs: Keywords) -> None:
            self._record.loaded = time.monotonic()

        def failed(error: BaseException, args: Arguments, kwargs: Keywords) -> None:
            self._failed(_config_of(args, kwargs), error)

        watched = self._hooks.wrap_errors(original, "start_executor_failed", failed)
        return self._hooks.wrap(watched, "start_executor", before=before, after=after)

    def kv_caches(self, original: Any) -> Any:
        """Wrap `_initialize_kv_caches`, which sizes the KV cache, compiles and warms up."""

        def after(_: None, result: Any, args: Arguments, kwargs: Keywords) -> None:
            if self._record.ready is not None:
                return  # a second call is not part of the start
            self._record.ready = time.monotonic()
            note(self._token, _config_of(args, kwargs), StartStage.READY, self._record.ready)
            reports, self._reports = self._reports, None
            for report in reports.read() if reports is not None else ():
                self._record.add(report)

        def failed(error: BaseException, args: Arguments, kwargs: Keywords) -> None:
            self._failed(_config_of(args, kwargs), error)

        watched = self._hooks.wrap_errors(original, "start_kv_caches_failed", failed)
        return self._hooks.wrap(watched, "start_kv_caches", after=after)

    def device(self, original: Any) -> Any:
        """Wrap the worker's `init_device`, and time the methods that follow it."""

        def before(args: Arguments, kwargs: Keywords) -> float:
            self._note(args[0], StartStage.WORKER)
            return time.monotonic()

        def after(at: float, result: Any, args: Arguments, kwargs: Keywords) -> None:
            self._note(args[0], StartStage.DEVICE)
            worker = getattr(args[0], "worker", None)
            if worker is not None and not guard.missing(worker, _TIMED):
                _TimedWorker(worker, time.monotonic() - at, self)

        def failed(error: BaseException, args: Arguments, kwargs: Keywords) -> None:
            self._failed(_config_of_worker(args[0]), error)

        watched = self._hooks.wrap_errors(original, "start_device_failed", failed)
        return self._hooks.wrap(watched, "start_device", before=before, after=after)

    def _note(self, worker: Any, stage: StartStage) -> None:
        note(self._token, _config_of_worker(worker), stage)

    def _failed(self, config: Any, error: BaseException) -> None:
        if not hasattr(error, _NOTED):  # only the innermost method reports an exception
            with suppress(AttributeError):
                setattr(error, _NOTED, True)
            note(self._token, config, StartStage.FAILED, error=type(error).__name__)

    def timed(self, worker: Any, name: str, before: Any, after: Any) -> Any:
        def done(began: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
            if name in _COMPLETES:
                note(self._token, getattr(worker, "vllm_config", None), _COMPLETES[name])
            after(began, result, args, kwargs)

        def failed(error: BaseException, args: Arguments, kwargs: Keywords) -> None:
            self._failed(getattr(worker, "vllm_config", None), error)

        original = getattr(worker, name)
        watched = self._hooks.wrap_errors(original, f"start_{name}_failed", failed)
        return self._hooks.wrap(watched, f"start_{name}", before=before, after=done)

    def worker_is_ready(self, report: WorkerStart) -> None:
        if multiprocessing.current_process().name.startswith(WORKER_PROCESSES):
            send_report(self._token, report)
        else:
            self._record.add(report)


class _TimedWorker:
    """The worker's wrappers are removed when the worker is ready."""

    def __init__(
        self,
        worker: Any,
        device_s: float,
        hooks: _StartHooks,
    ) -> None:
        self._worker = worker
        self._ready = hooks.worker_is_ready
        self._seconds = dict.fromkeys(_TIMED, 0.0)
        self._compiling = dict.fromkeys(_TIMED, 0.0)
        self._device_s = device_s
        for name in _TIMED:
            setattr(worker, name, self._timed(name, hooks))

    def _timed(self, name: str, hooks: _StartHooks) -> Any:
        def before(args: Arguments, kwargs: Keywords) -> tuple[float, float]:
            return time.monotonic(), compile_s(self._worker)

        def after(began: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
            self._seconds[name] += time.monotonic() - began[0]
            self._compiling[name] += max(0.0, compile_s(self._worker) - began[1])
            if name == "compile_or_warm_up_model":
                self._finish()

        return hooks.timed(self._worker, name, before, after)

    def _finish(self) -> None:
        for name in _TIMED:
            delattr(self._worker, name)
        _load, profile, warm = _TIMED
        self._ready(
            WorkerStart(
                self._device_s,
                self._seconds["load_model"],
                self._compiling[profile] + self._compiling[warm],
                max(0.0, self._seconds[warm] - self._compiling[warm]),
            )
        )


def _config_of(args: Arguments, kwargs: Keywords) -> Any:
    own = getattr(args[0], "vllm_config", None)
    return own if own is not None else kwargs.get("vllm_config", args[1] if args[1:] else None)


def _config_of_worker(wrapper: Any) -> Any:
    return getattr(getattr(wrapper, "worker", None), "vllm_config", None)


def compile_s(worker: Any) -> float:
    """The seconds that this process has spent in torch.compile so far.

    vLLM counts these seconds if it controls the compilation (the default on a GPU). If vLLM does
    not count them, the result is the longest of torch's nested timers.
    """
    config = worker.vllm_config.compilation_config
    counted = float(getattr(config, "compilation_time", 0.0))
    counted += float(getattr(config, "encoder_compilation_time", 0.0))
    dynamo = sys.modules.get("torch._dynamo.utils")
    timers = getattr(dynamo, "compilation_time_metrics", None) or {}
    return max(counted, *map(sum, timers.values()), 0.0)
