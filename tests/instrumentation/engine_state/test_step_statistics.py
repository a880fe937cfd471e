from types import SimpleNamespace
from typing import Any

from tailspan_vllm import names
from tailspan_vllm.engine_state.config_fingerprint import Scalar
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.engine_state.step_statistics import add_steps, load_of


def scheduler(running: int, **more: Any) -> SimpleNamespace:
    """Return a step's scheduler statistics, with the fields that every vLLM version has."""
    return SimpleNamespace(
        num_waiting_reqs=2,
        num_running_reqs=running,
        kv_cache_usage=0.25,
        prefix_cache_stats=SimpleNamespace(queries=10, hits=4),
        **more,
    )


def iteration(tokens: int, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        num_generation_tokens=tokens, num_prompt_tokens=50, num_preempted_reqs=1, **more
    )


def test_sums_add_up_and_gauges_are_the_last() -> None:
    state = EngineState(0, 0)
    add_steps(
        state,
        [
            (scheduler(1), iteration(3), None),
            (scheduler(7), None, None),
            (None, iteration(4), None),
        ],
    )
    assert state.totals == {
        names.DECODE_TOKENS: 7,
        names.PREFILL_TOKENS: 100,
        names.ENGINE_PREEMPTIONS: 2,
        names.PREFIX_CACHE_QUERIES: 20,
        names.PREFIX_CACHE_HITS: 8,
    }
    assert state.gauges == {names.WAITING: 2, names.RUNNING: 7, names.KV_USAGE: 0.25}


WITH_ADAPTERS_AND_CONNECTOR: dict[str, Scalar] = {
    "lora.max_loras": 2,
    "kv_transfer.kv_connector": "NixlConnector",
}


def test_newer_statistics_are_read() -> None:
    state = EngineState(0, 0, arguments=WITH_ADAPTERS_AND_CONNECTOR)
    newer = scheduler(
        1,
        num_skipped_waiting_reqs=3,
        running_lora_adapters={"a": 1, "b": 1},
        num_kv_fetch_reqs_by_stage={"waiting_to_start": 1, "in_progress": 2},
        kv_connector_stats={"bytes_transferred": [64]},
        connector_prefix_cache_stats=SimpleNamespace(queries=8, hits=5),
        spec_decoding_stats=SimpleNamespace(
            num_drafts=2, num_draft_tokens=6, num_accepted_tokens=3
        ),
        perf_stats=SimpleNamespace(
            num_flops_per_gpu=9, num_read_bytes_per_gpu=8, num_write_bytes_per_gpu=7
        ),
    )
    computed = SimpleNamespace(computed=20, local_cache_hit=5, external_kv_transfer=3)
    add_steps(state, [(newer, iteration(1, prompt_token_stats=computed), None)] * 2)
    assert state.gauges[names.WAITING] == 5
    assert state.gauges[names.DEFERRED] == 3
    assert state.gauges[names.RUNNING_LORAS] == 2
    assert state.gauges[names.FETCHING_KV] == 3
    assert state.totals[names.LOCAL_CACHED_PROMPT_TOKENS] == 10
    assert state.totals[names.EXTERNAL_CACHED_PROMPT_TOKENS] == 6
    assert state.totals[names.KV_TRANSFER_BYTES] == 128
    assert state.totals[names.PREFILL_TOKENS] == 40
    assert state.totals[names.EXTERNAL_CACHE_HITS] == 10
    assert state.totals[names.ACCEPTED_TOKENS] == 6
    assert state.totals[names.MODELLED_FLOPS] == 18


def test_the_load_is_read_from_a_step_or_from_gauges() -> None:
    assert load_of(scheduler(4, num_skipped_waiting_reqs=1)) == (3, 4, 0.25)
    assert load_of({names.WAITING: 1, names.RUNNING: 2}) == (1, 2, None)
    assert load_of({}) == load_of(None) == (None, None, None)


def test_without_a_kv_connector_no_request_loads_a_kv_cache() -> None:
    stages = dict.fromkeys(("waiting_to_start", "in_progress", "waiting_to_resume"), 0)
    for arguments, expected in (({}, None), (WITH_ADAPTERS_AND_CONNECTOR, 0)):
        state = EngineState(0, 0, arguments=arguments)
        add_steps(state, [(scheduler(1, num_kv_fetch_reqs_by_stage=stages), None, None)])
        assert state.gauges.get(names.FETCHING_KV) == expected


def test_a_state_that_ended_is_reported_as_zero() -> None:
    state = EngineState(0, 0, arguments=WITH_ADAPTERS_AND_CONNECTOR)
    fetching = scheduler(
        1, running_lora_adapters={"a": 1}, num_kv_fetch_reqs_by_stage={"in_progress": 1}
    )
    over = scheduler(0, running_lora_adapters={}, num_kv_fetch_reqs_by_stage={})
    add_steps(state, [(fetching, None, None)])
    add_steps(state, [(over, None, None)])
    assert (state.gauges[names.RUNNING_LORAS], state.gauges[names.FETCHING_KV]) == (0, 0)


def test_hits_by_tier_and_the_multimodal_cache_are_read() -> None:
    state = EngineState(0, 0)
    by_tier = {"host": 3, "external_unspecified": 2}
    external = SimpleNamespace(queries=8, hits=5, hits_by_source=by_tier)
    images = SimpleNamespace(queries=4, hits=1)
    step = (scheduler(1, connector_prefix_cache_stats=external), None, images)
    add_steps(state, [step, (None, None, images)])
    assert state.totals[names.EXTERNAL_CACHE_HITS] == 5
    hits = (names.HOST_CACHE_HITS, names.P2P_CACHE_HITS, names.DISK_CACHE_HITS)
    assert [state.totals[name] for name in hits] == [3, 0, 0]
    assert (state.totals[names.MM_CACHE_QUERIES], state.totals[names.MM_CACHE_HITS]) == (8, 2)


def test_totals_that_this_vllm_does_not_report_stay_absent() -> None:
    state = EngineState(0, 0)
    before = scheduler(1, connector_prefix_cache_stats=SimpleNamespace(queries=8, hits=5))
    add_steps(state, [(before, None, None)])
    assert names.HOST_CACHE_HITS not in state.totals
    assert names.MM_CACHE_QUERIES not in state.totals
