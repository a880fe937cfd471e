"""The engine's own statistics, from vLLM's public stat-logger interface.

`record` runs on the server's event loop after every engine step: it only keeps what it is
given, and another thread adds that up each second and sends it.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from vllm import __version__ as vllm_version
from vllm.v1.metrics.loggers import StatLoggerBase

from tailspan_vllm import guard, names
from tailspan_vllm.capture import process_capture
from tailspan_vllm.enginestats import Step, add_steps
from tailspan_vllm.fingerprint import arguments_of, fingerprint
from tailspan_vllm.machine import machine_of
from tailspan_vllm.metrics import EngineState

STEPS_KEPT = 65536
"""Steps that may wait to be added up: a minute of the quickest engine's."""

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
"""By the engine argument that makes it a zero rather than unknown."""


class TailspanStatLogger(StatLoggerBase):  # type: ignore[misc]  # vLLM is not there to be typed
    """Entry point `vllm.stat_logger_plugins`; vLLM makes one for each engine it serves."""

    def __init__(self, vllm_config: Any, engine_index: int = 0, **_: Any) -> None:
        self._state: EngineState | None = None
        self._steps: deque[Step] = deque(maxlen=STEPS_KEPT)
        self._begin(vllm_config, engine_index)

    @guard.harmless("stat_logger")
    def _begin(self, vllm_config: Any, engine_index: int) -> None:
        started_unix_ns = time.time_ns()
        arguments = arguments_of(vllm_config)
        served = vllm_config.model_config.served_model_name
        self._state = EngineState(
            engine=engine_index,
            started_unix_ns=started_unix_ns,
            model=served if isinstance(served, str) else served[0],
            config=fingerprint(arguments),
            version=str(vllm_version),
            arguments=arguments,
            machine=machine_of(vllm_config, started_unix_ns),
            totals=dict.fromkeys((*_COUNTED_FROM_ZERO, *_also_counted(arguments)), 0),
            catch_up=self._catch_up,
        )
        capture = process_capture()
        if capture.settings.enabled:
            capture.engines[engine_index] = self._state
            capture.sender.start()

    def record(
        self, scheduler_stats: Any = None, iteration_stats: Any = None, *_: Any, **__: Any
    ) -> None:
        """Note one step."""
        state = self._state
        if state is not None:
            if scheduler_stats is not None:
                state.load = scheduler_stats
            self._steps.append((scheduler_stats, iteration_stats))

    @guard.harmless("record")
    def _catch_up(self) -> None:
        """Add up the steps noted. On the sending thread."""
        state, count = self._state, len(self._steps)
        if state is not None and count:
            add_steps(state, [self._steps.popleft() for _ in range(count)])

    def log(self) -> None:
        """Nothing: the console is vLLM's."""

    def log_engine_initialized(self) -> None:
        """Nothing: the console is vLLM's."""


def _also_counted(arguments: Iterable[str]) -> Iterator[str]:
    for argument in arguments:
        yield from _COUNTED_IF_ASKED_FOR.get(argument, ())
