"""All faults. For each cause, this module lists the functions that inject it. Pure.

A fault's id is the cause that `tailspan explain` should find.
"""

from dataclasses import replace
from typing import Final

from simulator.conversations import Conversations
from simulator.fault import CAUSES, SimulatedFault
from simulator.faults import machine, retries, settings, traffic
from simulator.faults.injection import (
    Injection,
    by_the_first_tenant,
    on_its_replica,
)
from simulator.fleet_config import FleetConfig

__all__ = ["CAUSES", "INJECTIONS", "Injection", "SimulatedFault", "world_of"]


def _by_the_last_tenant(_fault: SimulatedFault, config: FleetConfig) -> dict[str, str]:
    return {"tenant": config.workload.tenants[-1].name}


def _conversing(config: FleetConfig) -> FleetConfig:
    if config.workload.trace:
        return config
    talk = config.workload.conversations or Conversations()
    return replace(
        config,
        workload=replace(config.workload, conversations=talk),
        router="cache_aware",
    )


def _adapters(config: FleetConfig) -> FleetConfig:
    engine = config.engine
    if not engine.max_loras:
        engine = replace(engine, max_loras=6, max_cpu_loras=12)
    loras = config.workload.loras or ("support", "search", "summary")
    return replace(config, engine=engine, workload=replace(config.workload, loras=loras))


def _speculating(config: FleetConfig) -> FleetConfig:
    tokens = config.engine.num_speculative_tokens or 4
    return replace(config, engine=replace(config.engine, num_speculative_tokens=tokens))


def _with_images(config: FleetConfig) -> FleetConfig:
    share = config.workload.image_share or 0.05
    return replace(config, workload=replace(config.workload, image_share=share))


def _two_replicas(config: FleetConfig) -> FleetConfig:
    if config.replicas > 1:
        return config
    workload = replace(config.workload, rate_per_s=config.workload.rate_per_s * 2)
    return replace(config, replicas=2, workload=workload if not workload.trace else config.workload)


INJECTIONS: Final[dict[str, Injection]] = {
    "load_exceeds_capacity": Injection(
        summary="in every other minute, requests exceed the fleet's capacity",
        affects="ttft_s",
        shows=("queue_seats_s",),
        arrivals=traffic.overload,
        where=traffic.overloaded_pool,
    ),
    "kv_cache_exhausted": Injection(
        summary="a leak leaves only slightly more KV blocks than are needed on average",
        affects="ttft_s",
        shows=("queue_kv_s",),
        events=settings.few_blocks,
    ),
    "preemption": Injection(
        summary="a leak leaves fewer KV blocks than the outputs need",
        affects="itl_max_s",
        shows=("decode_preempted_s",),
        rewrite=settings.outgrowing_answers,
        events=settings.outgrown_blocks,
    ),
    "prefill_interference": Injection(
        summary="a tenant sends many long prompts during other requests' decodes",
        # A step's token budget limits the longest time between two tokens. Ordinary traffic already
        # reaches this limit, so the fault lengthens only TPOT.
        affects="tpot_s",
        shows=("decode_others_prefill_s",),
        arrivals=traffic.long_prompts,
        where=by_the_first_tenant,
    ),
    "long_prompt_blocking": Injection(
        summary="occasionally a prompt uses the whole token budget of several steps",
        affects="ttft_s",
        shows=("queue_budget_s", "handoff_s", "prefill_others_prefill_s"),
        arrivals=traffic.huge_prompts,
        where=by_the_first_tenant,
    ),
    "longer_prompts": Injection(
        summary="all prompts are several times longer",
        affects="ttft_s",
        shows=("prefill_own_s", "prefill_others_prefill_s", "queue_budget_s", "handoff_s"),
        rewrite=traffic.longer_prompts,
    ),
    "longer_outputs": Injection(
        summary="all outputs are several times longer",
        affects="e2e_s",
        shows=("decode_own_s",),
        rewrite=traffic.longer_outputs,
    ),
    "prefix_cache_miss": Injection(
        summary="prompts no longer share a prefix, so they are not cached",
        affects="ttft_s",
        shows=("prefill_own_s", "prefill_others_prefill_s"),
        world=_conversing,
        needs="conversations, a prefix-aware router",
        rewrite=traffic.unique_prompts,
    ),
    "decode_batch_growth": Injection(
        summary="the number of concurrent requests with long contexts and long outputs increases",
        affects="tpot_s",
        shows=("decode_others_decode_s",),
        arrivals=traffic.long_context_requests,
        where=_by_the_last_tenant,
    ),
    "frontend_cpu": Injection(
        summary="the API server's process gets a small share of a CPU core",
        affects="ttft_s",
        shows=("frontend_s",),
        events=machine.busy_front_end,
    ),
    "engine_stall": Injection(
        summary="engines occasionally stop for a moment",
        affects="itl_max_s",
        shows=("decode_stall_s",),
        stalls=machine.pauses,
    ),
    "cold_start": Injection(
        summary="a server restarts repeatedly, each time with empty caches",
        affects="ttft_s",
        shows=("prefill_stall_s", "handoff_s"),
        world=_two_replicas,
        needs="2 replicas",
        events=machine.cold_starts,
        where=on_its_replica,
    ),
    "lora_swap": Injection(
        summary="part of the traffic needs adapters that must be loaded each time",
        affects="ttft_s",
        shows=("queue_held_s", "prefill_stall_s"),
        world=_adapters,
        needs="adapters",
        rewrite=traffic.unloaded_adapters,
    ),
    "spec_decode_rejection": Injection(
        summary="a new task has outputs that the draft head cannot predict",
        affects="tpot_s",
        shows=("decode_own_s",),
        world=_speculating,
        needs="speculative decoding",
        rewrite=traffic.rejected_drafts,
    ),
    "gpu_throttling": Injection(
        summary="a GPU's clock is throttled",
        affects="tpot_s",
        shows=("decode_own_s", "decode_others_decode_s"),
        events=machine.throttled,
        where=on_its_replica,
    ),
    "noisy_neighbour": Injection(
        summary="another process uses a GPU",
        affects="tpot_s",
        shows=("decode_own_s", "decode_others_decode_s"),
        events=machine.busy_gpu,
        where=on_its_replica,
    ),
    "slow_rank": Injection(
        summary="one of the GPUs that share a model is slow",
        affects="tpot_s",
        shows=("decode_own_s", "decode_others_decode_s"),
        world=machine.several_ranks,
        needs="4 GPUs a replica",
        events=machine.slow_rank,
        where=on_its_replica,
    ),
    "kv_transfer": Injection(
        summary="KV caches arrive from other servers over a slow network",
        affects="ttft_s",
        shows=("queue_held_s",),
        world=machine.fetched_caches,
        needs="a KV connector",
        events=machine.slow_transfers,
        where=machine.loading_pool,
    ),
    "network_or_client": Injection(
        summary="the clients of one tenant read their responses slowly",
        affects="e2e_s",
        shows=("delivery_s",),
        rewrite=traffic.slow_readers,
        where=lambda _fault, config: {"tenant": traffic.slow_tenant(config)},
    ),
    "tenant_flood": Injection(
        summary="a tenant sends bursts with many times the fleet's ordinary traffic",
        affects="ttft_s",
        shows=("handoff_s", "queue_budget_s", "queue_seats_s"),
        arrivals=traffic.flood,
        where=by_the_first_tenant,
    ),
    "replica_imbalance": Injection(
        summary="the router sends most of the traffic to one replica",
        affects="ttft_s",
        shows=("queue_seats_s", "handoff_s", "queue_budget_s", "prefill_others_prefill_s"),
        world=machine.four_replicas,
        needs="4 replicas",
        events=machine.imbalanced_routing,
        where=on_its_replica,
    ),
    "config_change": Injection(
        summary="a deploy changes an engine flag",
        affects="ttft_s",
        affects_else=settings.affected_latency,
        shows=("queue_seats_s", "decode_own_s"),
        events=settings.deploy,
        where=settings.flag_label,
    ),
    "engine_hang": Injection(
        summary="an engine takes no step until its server is restarted",
        affects="ttft_s",
        shows=(),
        events=machine.hangs,
        where=on_its_replica,
    ),
    "retry_storm": Injection(
        summary="clients give up after a short timeout and immediately send the same prompts again",
        affects="ttft_s",
        shows=("queue_seats_s", "handoff_s", "queue_budget_s", "prefill_others_decode_s"),
        world=retries.small_batches,
        needs="small batches",
        arrivals=retries.request_burst,
        rewrite=retries.client_timeouts,
    ),
    "grammar_compile": Injection(
        summary="part of the traffic brings new schemas, whose grammars must be compiled",
        affects="ttft_s",
        shows=("queue_held_s", "grammar_s"),
        rewrite=traffic.new_schemas,
    ),
    "encoder": Injection(
        summary="the images of prompts become much larger",
        affects="ttft_s",
        shows=("encoder_s", "prefill_own_s"),
        world=_with_images,
        needs="a model that takes images",
        rewrite=traffic.larger_images,
    ),
}


def world_of(config: FleetConfig) -> FleetConfig:
    """The configuration, extended by everything that its faults require."""
    for fault in config.faults:
        world = INJECTIONS[fault.cause].world
        if world is not None:
            config = world(config)
    return config
