import importlib
import sys
import threading
from abc import ABC, abstractmethod
from types import SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm import guard, names
from tailspan_vllm.export.sender import OtlpSender
from tailspan_vllm.front_end import capture as capture_module
from tailspan_vllm.front_end.capture import Capture
from tailspan_vllm.settings import settings_from

from tests.instrumentation import fake_vllm as fake


class StatLoggerBase(ABC):
    """The base class of a later vLLM that has more abstract methods."""

    @abstractmethod
    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None: ...

    @abstractmethod
    def record(self, scheduler_stats: Any, iteration_stats: Any) -> None:
        """Record statistics, as in current versions."""

    @abstractmethod
    def record_something_new(self, what: Any) -> None:
        """Record something, as a later version may require."""


CONFIG = SimpleNamespace(model_config=SimpleNamespace(served_model_name=["m"]))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module with a new capture that starts no thread."""
    fake.modules(monkeypatch, vllm__v1__metrics__loggers={"StatLoggerBase": StatLoggerBase})
    monkeypatch.delitem(sys.modules, "tailspan_vllm.statlogger", raising=False)
    monkeypatch.setattr(capture_module, "_capture", None)
    monkeypatch.setattr(OtlpSender, "start", lambda _: None)
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    made = importlib.import_module("tailspan_vllm.statlogger")
    monkeypatch.setattr(made, "machine_of", lambda *_: None)
    yield made
    sys.modules.pop("tailspan_vllm.statlogger", None)


def a_step() -> tuple[Any, Any]:
    of_scheduler = SimpleNamespace(
        num_running_reqs=2, num_waiting_reqs=1, kv_cache_usage=0.5, prefix_cache_stats=None
    )
    of_iteration = SimpleNamespace(
        num_generation_tokens=2, num_prompt_tokens=0, num_preempted_reqs=0
    )
    return of_scheduler, of_iteration


def state_of(engine: int = 0) -> Any:
    return capture_module.process_capture().engines[engine]


def test_a_vllm_that_asks_for_more_methods_starts_all_the_same(module: Any) -> None:
    """Without the method, vLLM could not create the logger and would not start."""
    logger = module.TailspanStatLogger(CONFIG, 3, something="new")
    logger.record(*a_step(), None, engine_idx=3, more=1)
    logger.record(iteration_stats=None, scheduler_stats=None)
    assert logger.record_something_new(1) is None
    logger.log(1, new=2)
    logger.log_engine_initialized()
    state = state_of(3)
    state.catch_up()
    assert (state.model, state.totals[names.DECODE_TOKENS]) == ("m", 2)


@pytest.mark.parametrize(("servers", "shared"), [(1, False), (2, True)])
def test_an_engine_of_several_api_servers_is_shared(
    module: Any, servers: int, shared: bool
) -> None:
    parallel = SimpleNamespace(_api_process_count=servers)
    module.TailspanStatLogger(SimpleNamespace(**vars(CONFIG), parallel_config=parallel))
    assert state_of().shared is shared


def test_an_engine_that_elastic_scaling_removed_is_no_longer_sampled(module: Any) -> None:
    """vLLM changes the number in the configuration after it has removed the last engines."""
    parallel = SimpleNamespace(data_parallel_size=3)
    config = SimpleNamespace(**vars(CONFIG), parallel_config=parallel)
    for engine in range(3):
        module.TailspanStatLogger(config, engine)
    reader = capture_module.process_capture().sender._reader
    for size in (3, 2):
        parallel.data_parallel_size = size
        reader.samples.clear()
        reader.look_at_engines(sampled=True)
        assert [each.state.engine for each in reader.samples] == list(range(size))


def test_if_disabled_no_data_is_kept(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    threads = threading.active_count()
    logger = module.TailspanStatLogger(CONFIG, 0)
    for _ in range(100):
        logger.record(*a_step())
    assert vars(logger) == {}
    assert capture_module._capture is None
    assert threading.active_count() == threads


def test_without_a_reading_thread_queued_steps_are_bounded_and_counted(module: Any) -> None:
    logger = module.TailspanStatLogger(CONFIG)
    for _ in range(5 * module.STEPS_WAITING + 7):
        logger.record(*a_step())
        assert len(logger._steps) < module.STEPS_WAITING
    state = state_of()
    state.catch_up()
    assert state.totals[names.DECODE_TOKENS] == 2 * (5 * module.STEPS_WAITING + 7)


def test_a_stopped_thread_loses_steps_that_are_counted(module: Any) -> None:
    logger, before = module.TailspanStatLogger(CONFIG), guard.failures["steps_dropped"]
    with logger._adding:
        for _ in range(module.STEPS_LIMIT + 5):
            logger.record(*a_step())
    assert len(logger._steps) == module.STEPS_LIMIT
    assert guard.failures["steps_dropped"] == before + 5


@pytest.mark.parametrize("lacking", ["num_running_reqs", "num_generation_tokens"])
def test_statistics_that_do_not_fit_are_no_zeros(
    module: Any, lacking: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Totals that do not change would look like an idle engine."""
    guard.failures.pop("add_steps", None)
    logger = module.TailspanStatLogger(CONFIG)
    for _ in range(3):
        step = a_step()
        for part in step:
            vars(part).pop(lacking, None)
        logger.record(*step)
        state_of().catch_up()
    assert state_of().totals == {}
    assert not logger._steps
    (line,) = [each.message for each in caplog.records]
    assert f"lack SimpleNamespace.{lacking}" in line


@pytest.mark.parametrize("given", [(), (None,), (3, "text"), (object(), object(), object())])
def test_no_argument_of_the_stat_logger_raises(module: Any, given: tuple[Any, ...]) -> None:
    for arguments in (given, (CONFIG, 0)):
        logger = module.TailspanStatLogger(*arguments)
        for _ in range(2):
            logger.record(*given)
            for state in capture_module.process_capture().engines.values():
                state.catch_up()


def test_our_failures_do_not_end_the_loop(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("arguments_of", "fingerprint", "process_capture", "settings_from", "EngineState"):
        before = guard.failures["stat_logger"]
        with monkeypatch.context() as patched:
            patched.setattr(module, name, fake.raising([], name))
            module.TailspanStatLogger(CONFIG).record(*a_step())
        assert guard.failures["stat_logger"] == before + 1
    logger, before = module.TailspanStatLogger(CONFIG), guard.failures["add_steps"]
    monkeypatch.setattr(module, "add_steps", fake.raising([], "add_steps"))
    for _ in range(2 * module.STEPS_WAITING):
        logger.record(*a_step())
    assert guard.failures["add_steps"] == before + 2
    assert isinstance(capture_module.process_capture(), Capture)
    assert settings_from({}).enabled
