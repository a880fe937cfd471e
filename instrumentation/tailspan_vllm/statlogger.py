"""Records engine statistics through vLLM's public stat-logger interface.

`record` runs on the server's event loop after every engine step, so it only stores its arguments. A
second thread adds up the stored steps each second.
"""

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from vllm import __version__ as vllm_version
from vllm.v1.metrics.loggers import StatLoggerBase

from tailspan_vllm import guard, names
from tailspan_vllm.engine_state.config_fingerprint import arguments_of, fingerprint
from tailspan_vllm.engine_state.hardware import machine_of
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.engine_state.step_statistics import Step, add_steps, missing_in
from tailspan_vllm.front_end.capture import process_capture
from tailspan_vllm.settings import settings_from

STEPS_WAITING = 1024
"""With more waiting steps, `record` adds the steps up itself, which takes about 2 ms."""

STEPS_LIMIT = 4 * STEPS_WAITING
"""The limit is reached only if the reading thread is stopped while it adds up steps."""

_COUNTED_FROM_ZERO = (
    names.PREFILL_TOKENS,
    names.DECODE_TOKENS,
    names.PREFIX_CACHE_QUERIES,
    names.PREFIX_CACHE_HITS,
    names.ENGINE_PREEMPTIONS,
)


_COUNTED_IF_ASKED_FOR = {
    "speculative.method": (names.DRAFTS, names.DRAFT_TOKENS, names.ACCEPTED_TOKENS),
    "kv_transfer.kv_connector": (names.EXTERNAL_CACHE_QUERIES, names.EXTERNAL_CACHE_HITS),
}
"""Maps an engine argument to totals. The totals begin at 0 if the argument is set. If the argument
is unset, the totals are unknown."""


class TailspanStatLogger(StatLoggerBase):  # type: ignore[misc]  # vLLM is not installed for mypy
    """The entry point `vllm.stat_logger_plugins`. vLLM creates one instance per engine."""

    _state: EngineState | None = None

    @guard.catch_exceptions("stat_logger")
    def __init__(self, vllm_config: Any, engine_index: int = 0, *_: Any, **__: Any) -> None:
        settings = settings_from(os.environ)
        if not settings.enabled:
            return
        self._steps: deque[Step] = deque()
        self._adding = threading.Lock()
        self._probed = False
        started_unix_ns = time.time_ns()
        arguments = arguments_of(vllm_config)
        served = vllm_config.model_config.served_model_name
        state = EngineState(
            engine=engine_index,
            started_unix_ns=started_unix_ns,
            model=served if isinstance(served, str) else served[0],
            config=fingerprint(arguments),
            version=str(vllm_version),
            arguments=arguments,
            machine=machine_of(vllm_config, started_unix_ns),
            totals=dict.fromkeys((*_COUNTED_FROM_ZERO, *_also_counted(arguments)), 0),
            catch_up=self._catch_up,
            shared=_api_servers(vllm_config) > 1,
        )
        capture = process_capture()
        capture.engines[engine_index] = state
        capture.sender.leaves_out(lambda engine: engine >= _engines(vllm_config))
        capture.sender.start()
        self._state = state

    def record(
        self,
        scheduler_stats: Any = None,
        iteration_stats: Any = None,
        mm_cache_stats: Any = None,
        *_: Any,
        **__: Any,
    ) -> None:
        """Record one step."""
        try:
            state = self._state
            if state is None:
                return
            if scheduler_stats is not None:
                state.load = scheduler_stats
            steps = self._steps
            steps.append((scheduler_stats, iteration_stats, mm_cache_stats))
            if len(steps) >= STEPS_WAITING:
                self._limit_steps()
        except Exception:
            guard.note_failure("record")

    @guard.catch_exceptions("record")
    def _limit_steps(self) -> None:
        self._catch_up()
        if len(self._steps) > STEPS_LIMIT:
            self._steps.popleft()
            guard.count(
                "steps_dropped", "tailspan: dropped a step, so the engine totals are too low"
            )

    @guard.catch_exceptions("add_steps")
    def _catch_up(self) -> None:
        """Add up the steps. This runs on the reading thread. If too many steps wait, it also runs
        on the event loop."""
        state = self._state
        if state is None or not self._steps or not self._adding.acquire(blocking=False):
            return
        try:
            steps = [self._steps.popleft() for _ in range(len(self._steps))]
            if not self._probed and (lacking := missing_in(steps)):
                # A total that never changes would look like an idle engine.
                self._state, state.load = None, None
                state.totals.clear()
                guard.count(
                    "add_steps",
                    "tailspan: engine totals are not reported, because vLLM's statistics lack"
                    f" {', '.join(lacking)}",
                )
                return
            self._probed = True
            add_steps(state, steps)
        finally:
            self._adding.release()

    def log(self, *_: Any, **__: Any) -> None:
        """Log nothing: vLLM logs its own statistics."""

    def log_engine_initialized(self, *_: Any, **__: Any) -> None:
        """Log nothing: vLLM logs its own statistics."""


# A later vLLM may add an abstract method. The server could then not start.
TailspanStatLogger.__abstractmethods__ = frozenset()


def _also_counted(arguments: Iterable[str]) -> Iterator[str]:
    for argument in arguments:
        yield from _COUNTED_IF_ASKED_FOR.get(argument, ())


def _engines(vllm_config: Any) -> int:
    """The number of data-parallel engines, which elastic expert parallelism changes. It removes the
    engines with the highest numbers first."""
    parallel = getattr(vllm_config, "parallel_config", None)
    return getattr(parallel, "data_parallel_size", sys.maxsize)


def _api_servers(vllm_config: Any) -> int:
    # vLLM keeps the number in a private attribute.
    parallel = getattr(vllm_config, "parallel_config", None)
    return getattr(parallel, "_api_process_count", 1)
