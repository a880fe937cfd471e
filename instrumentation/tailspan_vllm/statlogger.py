"""The engine's own statistics, from vLLM's public stat-logger interface.

`record` runs on the server's event loop after every engine step: it adds numbers up, and
what it adds up is sent each second by another thread.
"""

import time
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from tailspan_vllm import guard, names
from tailspan_vllm.capture import process_capture
from tailspan_vllm.fingerprint import fingerprint
from tailspan_vllm.metrics import EngineState

_COUNTED_FROM_ZERO = (
    names.PREFILL_TOKENS,
    names.DECODE_TOKENS,
    names.PREFIX_CACHE_QUERIES,
    names.PREFIX_CACHE_HITS,
    names.ENGINE_PREEMPTIONS,
)


class TailspanStatLogger(StatLoggerBase):  # type: ignore[misc]  # vLLM is not there to be typed
    """Entry point `vllm.stat_logger_plugins`; vLLM makes one for each engine it serves."""

    def __init__(self, vllm_config: Any, engine_index: int = 0, **_: Any) -> None:
        self._state: EngineState | None = None
        self._begin(vllm_config, engine_index)

    @guard.harmless("stat_logger")
    def _begin(self, vllm_config: Any, engine_index: int) -> None:
        served = vllm_config.model_config.served_model_name
        self._state = EngineState(
            engine=engine_index,
            started_unix_ns=time.time_ns(),
            model=served if isinstance(served, str) else served[0],
            config=fingerprint(vllm_config),
            totals=dict.fromkeys(_COUNTED_FROM_ZERO, 0),
        )
        capture = process_capture()
        if capture.settings.enabled:
            capture.engines[engine_index] = self._state
            capture.sender.start()

    @guard.harmless("record")
    def record(
        self, scheduler_stats: Any = None, iteration_stats: Any = None, *_: Any, **__: Any
    ) -> None:
        """Add up one step."""
        state = self._state
        if state is None:
            return
        if iteration_stats is not None:
            self._count_tokens(state, iteration_stats)
        if scheduler_stats is not None:
            self._note_scheduler(state, scheduler_stats)

    @staticmethod
    def _count_tokens(state: EngineState, stats: Any) -> None:
        state.add(names.DECODE_TOKENS, stats.num_generation_tokens)
        by_source = getattr(stats, "prompt_token_stats", None)
        state.add(
            names.PREFILL_TOKENS, by_source.computed if by_source else stats.num_prompt_tokens
        )
        state.add(names.ENGINE_PREEMPTIONS, stats.num_preempted_reqs)

    def _note_scheduler(self, state: EngineState, stats: Any) -> None:
        # Before 0.20 the deferred were not told apart: they were among the waiting.
        deferred = getattr(stats, "num_skipped_waiting_reqs", None)
        state.gauges[names.WAITING] = stats.num_waiting_reqs + (deferred or 0)
        if deferred is not None:
            state.gauges[names.DEFERRED] = deferred
        state.gauges[names.RUNNING] = stats.num_running_reqs
        state.gauges[names.KV_USAGE] = stats.kv_cache_usage
        local = stats.prefix_cache_stats
        if local is not None:
            state.add(names.PREFIX_CACHE_QUERIES, local.queries)
            state.add(names.PREFIX_CACHE_HITS, local.hits)
        external = getattr(stats, "connector_prefix_cache_stats", None)
        if external is not None:
            state.add(names.EXTERNAL_CACHE_QUERIES, external.queries)
            state.add(names.EXTERNAL_CACHE_HITS, external.hits)

        _note_where_present(state, stats)

    def log(self) -> None:
        """Nothing: the console is vLLM's."""

    def log_engine_initialized(self) -> None:
        """Nothing: the console is vLLM's."""


def _note_where_present(state: EngineState, stats: Any) -> None:
    """Speculation, adapters and modelled work: told by engines that have them."""
    drafting = getattr(stats, "spec_decoding_stats", None)
    if drafting is not None:
        state.add(names.DRAFTS, drafting.num_drafts)
        state.add(names.DRAFT_TOKENS, drafting.num_draft_tokens)
        state.add(names.ACCEPTED_TOKENS, drafting.num_accepted_tokens)
    waiting = getattr(stats, "waiting_lora_adapters", None)
    running = getattr(stats, "running_lora_adapters", None)
    if waiting or running:
        state.gauges[names.WAITING_LORAS] = sum((waiting or {}).values())
        state.gauges[names.RUNNING_LORAS] = sum((running or {}).values())
    modelled = getattr(stats, "perf_stats", None)
    if modelled is not None:
        state.add(names.MODELLED_FLOPS, modelled.num_flops_per_gpu)
        state.add(names.MODELLED_READ_BYTES, modelled.num_read_bytes_per_gpu)
        state.add(names.MODELLED_WRITE_BYTES, modelled.num_write_bytes_per_gpu)
