"""Adds vLLM's statistics of engine steps to an engine's totals and gauges.

Source: vllm/v1/metrics/stats.py, `SchedulerStats` and `IterationStats`, 0.12 to 0.33.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tailspan_vllm import names
from tailspan_vllm.engine_state.kv_transfer import transferred
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.guard import missing


class EngineLoad(NamedTuple):
    """Waiting and running requests, and KV-cache usage. Unknown values are None."""

    waiting: int | None
    running: int | None
    kv_usage: float | None


def load_of(seen: Any) -> EngineLoad:
    """Convert the `SchedulerStats` of a step, or a mapping of gauges by metric name."""
    if seen is None:
        return EngineLoad(None, None, None)
    if isinstance(seen, Mapping):
        waiting, running = seen.get(names.WAITING), seen.get(names.RUNNING)
        return EngineLoad(
            None if waiting is None else int(waiting),
            None if running is None else int(running),
            seen.get(names.KV_USAGE),
        )
    deferred = getattr(seen, "num_skipped_waiting_reqs", None) or 0
    return EngineLoad(seen.num_waiting_reqs + deferred, seen.num_running_reqs, seen.kv_cache_usage)


Step = tuple[Any, Any, Any]
"""The `SchedulerStats`, `IterationStats` and `MultiModalCacheStats` of one step."""


_READ_OF_SCHEDULER = (
    "num_running_reqs",
    "num_waiting_reqs",
    "kv_cache_usage",
    "prefix_cache_stats",
)
_READ_OF_ITERATION = ("num_generation_tokens", "num_prompt_tokens", "num_preempted_reqs")


def missing_in(steps: Iterable[Step]) -> list[str]:
    """The attributes that `add_steps` requires but these statistics lack."""
    for of_scheduler, of_iteration, _ in steps:
        lacking = [] if of_scheduler is None else missing(of_scheduler, _READ_OF_SCHEDULER)
        if of_iteration is not None:
            lacking += missing(of_iteration, _READ_OF_ITERATION)
        if lacking:
            return lacking
    return []


def add_steps(state: EngineState, steps: Iterable[Step]) -> None:
    """Add the statistics of steps to an engine's totals, and update its gauges."""
    decoded = prefilled = preempted = queries = hits = 0
    cached, local_cached, external_cached = False, 0, 0
    iterated, latest = False, None
    for of_scheduler, of_iteration, of_mm_cache in steps:
        if of_mm_cache is not None:
            state.add(names.MM_CACHE_QUERIES, of_mm_cache.queries)
            state.add(names.MM_CACHE_HITS, of_mm_cache.hits)
        if of_iteration is not None:
            iterated = True
            decoded += of_iteration.num_generation_tokens
            by_source = getattr(of_iteration, "prompt_token_stats", None)
            if by_source is None:
                prefilled += of_iteration.num_prompt_tokens
            else:
                cached = True
                prefilled += by_source.computed
                local_cached += by_source.local_cache_hit
                external_cached += by_source.external_kv_transfer
            preempted += of_iteration.num_preempted_reqs
        if of_scheduler is not None:
            latest = of_scheduler
            local = of_scheduler.prefix_cache_stats
            if local is not None:
                queries += local.queries
                hits += local.hits
            _add_where_present(state, of_scheduler)
    if iterated:  # without a Python front end, there are no `IterationStats`
        state.add(names.DECODE_TOKENS, decoded)
        state.add(names.PREFILL_TOKENS, prefilled)
        state.add(names.ENGINE_PREEMPTIONS, preempted)
    state.add(names.PREFIX_CACHE_QUERIES, queries)
    state.add(names.PREFIX_CACHE_HITS, hits)
    if cached:
        state.add(names.LOCAL_CACHED_PROMPT_TOKENS, local_cached)
        state.add(names.EXTERNAL_CACHED_PROMPT_TOKENS, external_cached)
    if latest is not None:
        _note_gauges(state, latest)


def _note_gauges(state: EngineState, stats: Any) -> None:
    deferred = getattr(stats, "num_skipped_waiting_reqs", None)
    if deferred is not None:
        state.gauges[names.DEFERRED] = deferred
    # Since 0.20, vLLM does not count deferred requests as waiting.
    state.gauges[names.WAITING] = stats.num_waiting_reqs + (deferred or 0)
    state.gauges[names.RUNNING] = stats.num_running_reqs
    state.gauges[names.KV_USAGE] = stats.kv_cache_usage
    # Since 0.32, vLLM also sends the stages if the engine has no KV connector.
    stages = getattr(stats, "num_kv_fetch_reqs_by_stage", None)
    if stages is not None and "kv_transfer.kv_connector" in state.arguments:
        state.gauges[names.FETCHING_KV] = sum(stages.values())
    # The engine core reports `WAITING_LORAS`. vLLM's own number leaves out requests that were never
    # scheduled.
    if "lora.max_loras" in state.arguments:
        running = getattr(stats, "running_lora_adapters", None)
        state.gauges[names.RUNNING_LORAS] = sum((running or {}).values())


_HITS_BY_TIER = {
    "host": names.HOST_CACHE_HITS,
    "p2p": names.P2P_CACHE_HITS,
    "disk": names.DISK_CACHE_HITS,
}
"""Hits in other tiers are counted only as external hits."""


def _add_where_present(state: EngineState, stats: Any) -> None:
    external = getattr(stats, "connector_prefix_cache_stats", None)
    if external is not None:
        state.add(names.EXTERNAL_CACHE_QUERIES, external.queries)
        state.add(names.EXTERNAL_CACHE_HITS, external.hits)
        by_tier = getattr(external, "hits_by_source", None)
        if by_tier is not None:
            hits = {getattr(tier, "value", tier): number for tier, number in by_tier.items()}
            for tier, name in _HITS_BY_TIER.items():
                state.add(name, hits.get(tier, 0))
    connector = getattr(stats, "kv_connector_stats", None)
    if connector:
        for name, amount in transferred(connector).items():
            state.add(name, amount)
    drafting = getattr(stats, "spec_decoding_stats", None)
    if drafting is not None:
        state.add(names.DRAFTS, drafting.num_drafts)
        state.add(names.DRAFT_TOKENS, drafting.num_draft_tokens)
        state.add(names.ACCEPTED_TOKENS, drafting.num_accepted_tokens)
    modelled = getattr(stats, "perf_stats", None)
    if modelled is not None:
        state.add(names.MODELLED_FLOPS, modelled.num_flops_per_gpu)
        state.add(names.MODELLED_READ_BYTES, modelled.num_read_bytes_per_gpu)
        state.add(names.MODELLED_WRITE_BYTES, modelled.num_write_bytes_per_gpu)
