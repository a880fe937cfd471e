import multiprocessing
import os
import sys
import time
from collections import Counter
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm import guard
from tailspan_vllm.start_up import hooks
from tailspan_vllm.start_up.hooks import compile_s, install_on
from tailspan_vllm.start_up.instants import StartRecord
from tailspan_vllm.start_up.worker_reports import WorkerReports

TOKEN = f"hooking-{os.getpid()}"


@pytest.fixture(autouse=True)
def no_failures(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counted: Counter[str] = Counter()
    monkeypatch.setattr(guard, "failures", counted)
    return counted


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def vllm(clock: Clock, compiling: tuple[float, float] = (0.0, 0.0)) -> Any:
    """Return the classes of an engine core whose stages take known times."""

    class Worker:
        def __init__(self) -> None:
            config = SimpleNamespace(compilation_time=0.0, encoder_compilation_time=0.0)
            self.vllm_config = SimpleNamespace(compilation_config=config)

        def _take(self, seconds: float, compiled_s: float = 0.0) -> None:
            clock.now += seconds + compiled_s
            self.vllm_config.compilation_config.compilation_time += compiled_s

        def load_model(self, *, load_dummy_weights: bool = False) -> str:
            self._take(12.0)
            return "loaded"

        def determine_available_memory(self) -> int:
            self._take(3.0, compiling[0])
            return 7

        def compile_or_warm_up_model(self) -> str:
            self._take(5.0, compiling[1])
            return "warm"

    class WorkerWrapperBase:
        def __init__(self) -> None:
            self.worker = Worker()

        def init_device(self) -> None:
            clock.now += 2.0

    class Executor:
        def __init__(self, config: Any) -> None:
            self.wrapper = WorkerWrapperBase()
            clock.now += 1.0
            self.wrapper.init_device()
            assert self.wrapper.worker.load_model(load_dummy_weights=False) == "loaded"

    class EngineCore:
        def __init__(self) -> None:
            self.executor = Executor(None)
            self.given = self._initialize_kv_caches("config")

        def _initialize_kv_caches(self, config: Any) -> Any:
            worker = self.executor.wrapper.worker
            assert worker.determine_available_memory() == 7
            assert worker.compile_or_warm_up_model() == "warm"
            return config

    return SimpleNamespace(executor=Executor, core=EngineCore, worker=WorkerWrapperBase)


def installed(fakes: Any, record: StartRecord) -> list[str]:
    return install_on(fakes.executor, fakes.core, fakes.worker, TOKEN, record)


def test_the_stages_of_an_engine_in_this_process_are_timed(
    monkeypatch: pytest.MonkeyPatch, no_failures: Counter[str]
) -> None:
    fakes, record = vllm(Clock(monkeypatch), compiling=(6.0, 3.0)), StartRecord()
    assert installed(fakes, record) == []
    core = fakes.core()
    assert core.given == "config"
    instants = record.instants()
    assert instants is not None
    assert instants.executor == 100.0
    assert instants.loaded == 115.0
    assert instants.ready == 132.0
    assert instants.worker == (2.0, 12.0, 9.0, 5.0)
    assert no_failures == {}
    # The worker's wrappers are removed, so that later calls cost nothing.
    assert not vars(core.executor.wrapper.worker).keys() & set(hooks._TIMED)


def test_a_worker_in_its_own_process_sends_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes, record = vllm(Clock(monkeypatch)), StartRecord()
    monkeypatch.setattr(os, "getppid", os.getpid)
    reports = WorkerReports(TOKEN)
    assert install_on(None, None, fakes.worker, TOKEN, record) == []
    current = SimpleNamespace(name="VllmWorker-1")
    monkeypatch.setattr(multiprocessing, "current_process", lambda: current)
    wrapper = fakes.worker()
    wrapper.init_device()
    for name in hooks._TIMED:
        getattr(wrapper.worker, name)()
    assert record.workers == []
    assert reports.read() == [(2.0, 12.0, 0.0, 5.0)]


def test_the_engine_core_adds_the_reports_of_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes, record = vllm(Clock(monkeypatch)), StartRecord()
    monkeypatch.setattr(os, "getppid", os.getpid)
    monkeypatch.setattr(hooks, "WORKER_PROCESSES", ("",))  # every process counts as a worker
    installed(fakes, record)
    fakes.core()
    assert record.workers == [(2.0, 12.0, 0.0, 5.0)]


@pytest.mark.parametrize("missing", ["executor", "core", "worker"])
def test_a_missing_method_is_named_and_the_others_stay(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes, record = vllm(Clock(monkeypatch)), StartRecord()

    class Other:
        __init__ = None

    setattr(fakes, missing, Other)
    (found,) = installed(fakes, record)
    assert found.startswith("Other.")
    assert record.instants() is None


def test_a_worker_without_the_methods_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes, record = vllm(Clock(monkeypatch)), StartRecord()
    installed(fakes, record)
    wrapper = fakes.worker()
    wrapper.worker = SimpleNamespace()
    wrapper.init_device()
    assert vars(wrapper.worker) == {}


def test_an_exception_of_a_hook_does_not_reach_vllm(
    monkeypatch: pytest.MonkeyPatch, no_failures: Counter[str]
) -> None:
    fakes, record = vllm(Clock(monkeypatch)), StartRecord()
    installed(fakes, record)

    def fail(*_: Any) -> None:
        raise OSError("no socket")

    monkeypatch.setattr(hooks, "WorkerReports", fail)
    monkeypatch.setattr(hooks, "compile_s", fail)
    assert fakes.core().given == "config"
    assert no_failures.keys() >= {"start_executor", "start_load_model"}


def test_a_failure_of_vllm_reaches_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes, record = vllm(Clock(monkeypatch)), StartRecord()

    def fail(self: Any) -> None:
        raise MemoryError("no memory")

    fakes.worker.init_device = fail
    installed(fakes, record)
    with pytest.raises(MemoryError, match="no memory"):
        fakes.core()


def test_without_vllms_count_the_longest_of_torchs_timers_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dynamo = ModuleType("torch._dynamo.utils")
    timers = {"fullgraph_capture": [3.0, 1.0], "compile_fx_inner": [2.5]}
    dynamo.compilation_time_metrics = timers  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", dynamo)

    def worker(**counted: float) -> Any:
        config = SimpleNamespace(compilation_config=SimpleNamespace(**counted))
        return SimpleNamespace(vllm_config=config)

    assert compile_s(worker()) == 4.0
    assert compile_s(worker(compilation_time=0.0)) == 4.0
    assert compile_s(worker(compilation_time=6.0, encoder_compilation_time=1.0)) == 7.0
    timers.clear()
    assert compile_s(worker()) == 0.0
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils")
    assert compile_s(worker()) == 0.0
