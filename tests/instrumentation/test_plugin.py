import multiprocessing
import os
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm import guard, plugin
from tailspan_vllm.engine_core import scheduler_hooks
from tailspan_vllm.engine_core.link import TOKEN_VARIABLE
from tailspan_vllm.front_end import capture as capture_module
from tailspan_vllm.http import TimingMiddleware
from tailspan_vllm.start_up.process import START_VARIABLE

from tests.instrumentation import fake_vllm as fake


class Vllm:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = fake.Calls()
        self.scheduler = fake.scheduler_class(self.calls)
        self.processor = fake.output_processor_class(self.calls)
        self.stats = fake.iteration_stats_class(self.calls)
        self.manager = fake.stat_logger_manager_class(self.calls)
        calls = self.calls

        class FastAPI:
            def __init__(self) -> None:
                self.state = SimpleNamespace(args=SimpleNamespace(port=8123))

            def build_middleware_stack(self) -> Any:
                return calls.note("build_middleware_stack", self)

        self.app = FastAPI
        self.executor, self.core, self.worker = fake.start_classes(calls)
        self.classes = (
            *(self.scheduler, self.processor, self.stats, self.manager, self.app),
            *(self.executor, self.core, self.worker),
        )
        self.before = [dict(vars(each)) for each in self.classes]
        fake.modules(
            monkeypatch,
            vllm__v1__core__sched__scheduler={"Scheduler": self.scheduler},
            vllm__v1__executor__abstract={"Executor": self.executor},
            vllm__v1__engine__core={"EngineCore": self.core},
            vllm__v1__worker__worker_base={"WorkerWrapperBase": self.worker},
            vllm__v1__engine__output_processor={"OutputProcessor": self.processor},
            vllm__v1__metrics__loggers={"StatLoggerManager": self.manager},
            vllm__v1__metrics__stats={"IterationStats": self.stats},
            fastapi={"FastAPI": FastAPI},
        )

    @property
    def untouched(self) -> bool:
        return self.before == [dict(vars(each)) for each in self.classes]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Vllm:
    monkeypatch.setattr(plugin, "_installed", False)
    monkeypatch.setattr(capture_module, "_capture", None)
    # monkeypatch removes these variables after the test, even if the plugin changes them.
    for variable in (TOKEN_VARIABLE, START_VARIABLE):
        monkeypatch.setenv(variable, "t")
        monkeypatch.delenv(variable)
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    return Vllm(monkeypatch)


def test_if_disabled_no_hook_is_installed(vllm: Vllm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", " True ")
    monkeypatch.setattr(socket, "socket", fake.raising([], "socket"))
    threads = threading.active_count()
    plugin.install()
    plugin.install()
    assert vllm.untouched
    assert TOKEN_VARIABLE not in os.environ
    assert capture_module._capture is None
    assert threading.active_count() == threads


def test_enabled_every_part_is_wrapped_once(
    vllm: Vllm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.install()
    assert not vllm.untouched
    wrapped = [dict(vars(each)) for each in vllm.classes]
    plugin.install()
    assert wrapped == [dict(vars(each)) for each in vllm.classes]
    assert caplog.records == []
    assert os.environ[TOKEN_VARIABLE]


def test_a_worker_only_times_its_own_start(
    vllm: Vllm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = SimpleNamespace(name="VllmWorker-0")
    monkeypatch.setattr(multiprocessing, "current_process", lambda: current)
    monkeypatch.setenv(TOKEN_VARIABLE, "inherited")
    plugin.install()
    assert hasattr(vllm.worker.init_device, "__wrapped__")
    others = [
        vllm.scheduler.schedule,
        vllm.app.build_middleware_stack,
        vars(vllm.executor)["__init__"],
    ]
    assert not any(hasattr(each, "__wrapped__") for each in others)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("process", "is_own"), [("APIServer_DPRank_1", True), ("ApiServer_1", False)]
)
def test_each_server_of_a_supervisor_has_its_own_link(
    vllm: Vllm, monkeypatch: pytest.MonkeyPatch, process: str, is_own: bool
) -> None:
    """The API servers of one server share its link and the watch of its start."""
    watched: list[str] = []
    monkeypatch.setattr(plugin, "note_first_process", lambda environ: False)
    monkeypatch.setattr(plugin, "_watch_start", lambda: watched.append(os.environ[TOKEN_VARIABLE]))
    plugin.install()
    of_parent = os.environ[TOKEN_VARIABLE]
    monkeypatch.setattr(plugin, "_installed", False)
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(name=process))
    plugin.install()
    own = os.environ[TOKEN_VARIABLE]
    assert (own != of_parent) is is_own
    assert watched == ([own] if is_own else [])


@pytest.mark.parametrize(
    ("process", "backend", "index", "expected"),
    [
        ("EngineCore_DP3", "mp", 3, 3),
        ("MainProcess", "ray", 3, 3),
        ("MainProcess", "mp", 3, 0),  # an `LLM` without an engine process has only engine 0
    ],
)
def test_an_engine_core_has_the_number_of_its_data_parallel_rank(
    vllm: Vllm,
    monkeypatch: pytest.MonkeyPatch,
    process: str,
    backend: str,
    index: int,
    expected: int,
) -> None:
    """An engine core of `--data-parallel-backend ray` runs in an actor, whose process has no
    name."""
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(name=process))
    made: list[Any] = []

    def install(make: Any, *, early: bool) -> list[str]:
        made.append(make)
        return []

    monkeypatch.setattr(scheduler_hooks, "install", install)
    plugin.install()
    parallel = SimpleNamespace(data_parallel_backend=backend, data_parallel_index=index)
    config = SimpleNamespace(parallel_config=parallel)
    observer = made[0](SimpleNamespace(vllm_config=config))
    observer.close()
    assert observer._engine == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.33.1", 0), ("0.34.0rc1", 1), ("1.2", 1), ("0.11.0", 1), ("dev", 0)],
)
def test_an_untested_vllm_version_logs_one_line(
    vllm: Vllm,
    version: str,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("vllm.__version__", version)
    plugin.install()
    assert [f"vLLM {version} was not tested" in each.message for each in caplog.records] == [
        True
    ] * expected
    assert not vllm.untouched


def test_a_missing_method_is_named(vllm: Vllm, caplog: pytest.LogCaptureFixture) -> None:
    del vllm.scheduler.schedule
    del vllm.processor.abort_requests
    plugin.install()
    lines = [each.message for each in caplog.records]
    assert [line.partition(" (")[0] for line in lines] == [
        "tailspan: this vLLM lacks Scheduler.schedule",
        "tailspan: this vLLM lacks OutputProcessor.abort_requests",
    ]
    assert hasattr(vllm.processor.add_request, "__wrapped__")
    assert not hasattr(vllm.scheduler.add_request, "__wrapped__")


@pytest.mark.parametrize(
    "name", ["settings_from", "make_token", "_install_in_engine", "_install_in_front_end"]
)
def test_whichever_part_raises_the_process_starts(
    vllm: Vllm, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    guard.failures.pop("install", None)
    boom = fake.raising([], name)
    boom.__name__ = name
    monkeypatch.setattr(plugin, name, boom)
    plugin.install()
    assert len(caplog.records) == 1


def test_an_application_is_timed_or_unchanged(vllm: Vllm, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin.install()
    stack = vllm.calls.answers["build_middleware_stack"] = object()
    timed = vllm.app().build_middleware_stack()
    assert isinstance(timed, TimingMiddleware)
    assert timed.app is stack
    bare = vllm.app()
    del bare.state
    assert bare.build_middleware_stack() is stack
    monkeypatch.setattr("tailspan_vllm.http.TimingMiddleware.__init__", fake.raising([], "init"))
    assert vllm.app().build_middleware_stack() is stack
