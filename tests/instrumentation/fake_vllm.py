"""Fakes of the vLLM classes that the plugin hooks; they record their calls."""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm import guard

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Calls:
    """Records calls of the original methods, and sets what they return or raise."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Call]] = []
        self.answers: dict[str, Any] = {}
        self.raised: dict[str, Exception] = {}

    def note(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self.made.append((name, (args, kwargs)))
        if name in self.raised:
            raise self.raised[name]
        return self.answers.get(name)

    def check(self, owner: Any, name: str, answer: Any, *args: Any, **kwargs: Any) -> None:
        """Call a method, and check that it behaves as if the plugin were absent."""
        self.answers[name] = answer
        before = len(self.made)
        method = getattr(owner, name)
        assert method(*args, **kwargs) is answer
        ((called, (given, named)),) = self.made[before:]
        assert called == name
        assert given[0] is method.__self__
        assert len(given) + len(named) >= 1 + len(args) + len(kwargs)
        for was, sent in zip(given[1:], args, strict=False):
            assert was is sent
        for key, value in kwargs.items():
            assert named.get(key, value) is value


def start_classes(calls: Calls) -> tuple[Any, Any, Any]:
    """Return the classes of an executor, an engine core and a worker."""

    class Executor:
        def __init__(self, vllm_config: Any) -> None:
            calls.note("__init__", self, vllm_config)

    class EngineCore:
        def _initialize_kv_caches(self, vllm_config: Any) -> Any:
            return calls.note("_initialize_kv_caches", self, vllm_config)

    class WorkerWrapperBase:
        def init_device(self) -> Any:
            return calls.note("init_device", self)

    return Executor, EngineCore, WorkerWrapperBase


def failures() -> int:
    return sum(guard.failures.values())


def modules(monkeypatch: pytest.MonkeyPatch, **of_its_own: dict[str, Any]) -> None:
    """Make the modules of a vLLM 0.32 importable, with these classes. `__` in a module's name
    stands for a dot."""
    for name in ("vllm", *(each.replace("__", ".") for each in of_its_own)):
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            full = ".".join(parts[:length])
            if full not in sys.modules:
                monkeypatch.setitem(sys.modules, full, ModuleType(full))
    monkeypatch.setattr(sys.modules["vllm"], "__version__", "0.32.0", raising=False)
    for name, content in of_its_own.items():
        for key, value in content.items():
            monkeypatch.setattr(sys.modules[name.replace("__", ".")], key, value, raising=False)


def request(request_id: str = "r", tokens: int = 8) -> Any:
    """Return a request with the attributes that the scheduler and the front end read."""
    return SimpleNamespace(
        request_id=request_id,
        num_computed_tokens=0,
        num_tokens=tokens,
        block_hashes=[bytes(32)] * (tokens // 4),
        trace_headers=None,
        lora_request=None,
        status=SimpleNamespace(name="WAITING"),
    )


def output(counts: dict[str, int], new: tuple[str, ...] = ()) -> Any:
    old = [name for name in counts if name not in new]
    return SimpleNamespace(
        num_scheduled_tokens=counts,
        total_num_scheduled_tokens=sum(counts.values()),
        scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in new],
        scheduled_cached_reqs=SimpleNamespace(
            num_computed_tokens=[8] * len(old), resumed_req_ids=set()
        ),
    )


class Waiting(list[Any]):
    def peek_request(self) -> Any:
        return self[0]


def scheduler_class(calls: Calls) -> Any:
    class Scheduler:
        def __init__(self) -> None:
            self.requests: dict[str, Any] = {}
            self.running: list[Any] = []
            self.waiting = Waiting()
            self.max_num_running_reqs = 2
            self.max_num_scheduled_tokens = 512
            self.block_size = 4
            self.scheduler_config = SimpleNamespace(enable_chunked_prefill=True)
            self.kv_cache_manager = SimpleNamespace(
                kv_cache_config=SimpleNamespace(kv_cache_groups=[1]),
                block_pool=SimpleNamespace(get_num_free_blocks=lambda: 100),
            )
            self.vllm_config = SimpleNamespace(
                model_config=SimpleNamespace(served_model_name="m"),
                cache_config=SimpleNamespace(block_size=16),
                lora_config=None,
            )

        def has_unfinished_requests(self) -> bool:
            return bool(self.requests)

        def schedule(self, throttle_prefills: bool = False) -> Any:
            return calls.note("schedule", self, throttle_prefills=throttle_prefills)

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            return calls.note("update_from_output", self, scheduler_output, model_runner_output)

        def add_request(self, request: Any) -> Any:
            return calls.note("add_request", self, request)

        def _free_request(self, request: Any, delay_free_blocks: bool = False) -> Any:
            return calls.note("_free_request", self, request, delay_free_blocks=delay_free_blocks)

        def _preempt_request(self, request: Any, timestamp: float) -> Any:
            return calls.note("_preempt_request", self, request, timestamp)

    return Scheduler


def output_processor_class(calls: Calls) -> Any:
    class OutputProcessor:
        def __init__(self) -> None:
            self.request_states: dict[str, Any] = {}

        def add_request(self, request: Any, prompt: Any, parent_req: Any = None) -> Any:
            state = SimpleNamespace(
                request_id=request.request_id,
                external_req_id="x",
                parent_req=None,
                lora_name=None,
                prompt_len=8,
                num_cached_tokens=0,
                stats=SimpleNamespace(
                    arrival_time=1.0,
                    queued_ts=1.0,
                    scheduled_ts=1.0,
                    first_token_ts=1.0,
                    last_token_ts=1.0,
                    num_generation_tokens=1,
                ),
            )
            self.request_states[request.request_id] = state
            return calls.note("add_request", self, request, prompt, parent_req=parent_req)

        def _finish_request(self, req_state: Any) -> Any:
            self.request_states.pop(req_state.request_id, None)
            return calls.note("_finish_request", self, req_state)

        def _update_stats_from_finished(
            self, req_state: Any, finish_reason: Any, iteration_stats: Any
        ) -> Any:
            return calls.note(
                "_update_stats_from_finished", self, req_state, finish_reason, iteration_stats
            )

        def abort_requests(self, request_ids: Any, internal: bool) -> Any:
            calls.note("abort_requests", self, request_ids, internal)
            ids = [each for each in request_ids if self.request_states.pop(each, None)]
            return calls.answers.get("abort_requests", ids)

    return OutputProcessor


def iteration_stats_class(calls: Calls) -> Any:
    class IterationStats:
        def update_from_events(
            self, req_id: str, events: Any, is_prefilling: bool, req_stats: Any, lora: Any
        ) -> Any:
            return calls.note(
                "update_from_events", self, req_id, events, is_prefilling, req_stats, lora
            )

    return IterationStats


def balancing_client_class(calls: Calls) -> Any:
    class DPLBAsyncMPClient:
        def get_core_engine_for_request(self, request: Any) -> Any:
            return calls.note("get_core_engine_for_request", self, request)

    return DPLBAsyncMPClient


def stat_logger_manager_class(calls: Calls) -> Any:
    class StatLoggerManager:
        def record_admission_rejection(self, reason: str) -> Any:
            return calls.note("record_admission_rejection", self, reason)

    return StatLoggerManager


def functions_of(owner: Any) -> Iterator[tuple[Any, str]]:
    """Return every function and property of a class or module of the plugin, as (owner, name)."""
    for name, value in vars(owner).items():
        module = getattr(value, "__module__", None) or ""
        ours = isinstance(value, property) or (
            callable(value) and module.startswith("tailspan_vllm")
        )
        if ours and not name.startswith("__") and not isinstance(value, type):
            yield owner, name


def raising(called: list[str], name: str) -> Callable[..., Any]:
    """Return a function that adds `name` to `called` and raises an exception."""

    def boom(*_: Any, **__: Any) -> Any:
        called.append(name)
        raise ZeroDivisionError(name)

    return boom
