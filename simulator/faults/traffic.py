"""Faults of the traffic: more or different requests.

The additional work is limited to a share of the unused capacity, so that no queue grows without
limit.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from simulator import capacity
from simulator.fault import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Prefix, SimulatedRequest


def _poisson(
    chance: random.Random, rate_per_s: float, from_s: float, to_s: float
) -> Iterator[float]:
    at_s = from_s
    while (at_s := at_s + chance.expovariate(rate_per_s)) < to_s:
        yield at_s


def _spare_per_s(config: FleetConfig) -> float:
    means = capacity.means_of(config.workload, config.engine)
    if config.prefill_replicas:
        whole, _ = _narrowest_pool(config)
    else:
        whole = capacity.capacity_per_s(config.engine, means) * config.replicas
    return max(whole - config.workload.rate_per_s, 0.1 * whole)


def _narrowest_pool(config: FleetConfig) -> tuple[float, str]:
    """The lowest capacity of any pool, in requests per second, and the name of this pool.

    A prefill server generates one token per request. A decode server computes no prompt tokens.
    """
    means = capacity.means_of(config.workload, config.engine)
    prefills = capacity.capacity_per_s(config.engine, means._replace(output_tokens=1.0))
    decodes = capacity.capacity_per_s(config.engine, means._replace(prefill_s=0.0))
    return min(
        (prefills * config.prefill_replicas, "prefill"),
        (decodes * (config.replicas - config.prefill_replicas), "decode"),
    )


def overloaded_pool(_fault: SimulatedFault, config: FleetConfig) -> dict[str, str]:
    """The label of the pool with the lowest capacity, if there are pools."""
    return {"pool": _narrowest_pool(config)[1]} if config.prefill_replicas else {}


def overload(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Iterator[SimulatedRequest]:
    """Add load about every second minute. At severity 1, it slightly exceeds the free capacity."""
    rate_per_s = _spare_per_s(config) * (0.95 + 0.12 * fault.severity)
    more = replace(config.workload, rate_per_s=rate_per_s, trace=())
    at_s = fault.start_s
    while at_s < fault.end_s:
        yield from more.arrivals(f"{chance.random()}", at_s, min(at_s + 60.0, fault.end_s))
        at_s += chance.uniform(110.0, 130.0)


def flood(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Iterator[SimulatedRequest]:
    """Send bursts of one tenant's requests, at many times the rate of the whole fleet."""
    mean_per_s = _spare_per_s(config) * capacity.target_utilisation(fault.severity, 1.0)
    more = replace(
        config.workload, rate_per_s=5.0 * mean_per_s, tenants=config.workload.tenants[:1], trace=()
    )
    # A burst lasts four seconds, and bursts are about twenty seconds apart. With longer bursts the
    # queue would grow without limit.
    at_s = fault.start_s
    while at_s < fault.end_s:
        yield from more.arrivals(f"{chance.random()}", at_s, min(at_s + 4.0, fault.end_s))
        at_s += chance.uniform(15.0, 25.0)


def _prefilling(
    fault: SimulatedFault,
    config: FleetConfig,
    chance: random.Random,
    tokens: tuple[int, int],
    share_of_time: float,
) -> Iterator[SimulatedRequest]:
    """Yield one tenant's requests without shared prefixes. Their prefills take the share
    `share_of_time` of the engines' time."""
    longest = config.engine.max_model_len - 1
    shortest, most = min(tokens[0], longest // 2), min(tokens[1], longest - 512)
    each_s = config.engine.step.prefill_s((shortest + most) // 2, 0)
    rate_per_s = share_of_time * config.replicas / each_s
    for at_s in _poisson(chance, rate_per_s, fault.start_s, fault.end_s):
        yield SimulatedRequest(
            at_s=at_s,
            tenant=config.workload.tenants[0].name,
            prompt_tokens=chance.randint(shortest, most),
            output_tokens=min(config.workload.answers.draw(chance), 500),
        )


def long_prompts(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Iterator[SimulatedRequest]:
    """Send many prompts that fill one long step (by default, 5,000 to 8,000 tokens)."""
    most = config.engine.max_num_batched_tokens - config.engine.max_num_seqs
    share = 0.4 * capacity.target_utilisation(fault.severity, 0.8)
    yield from _prefilling(fault, config, chance, (most * 5 // 8, most), share)


def huge_prompts(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Iterator[SimulatedRequest]:
    """Sometimes send a prompt that uses the whole token budget of several steps."""
    share = 0.5 * capacity.target_utilisation(fault.severity, 0.8)
    yield from _prefilling(fault, config, chance, (24_000, 32_000), share)


def long_context_requests(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Iterator[SimulatedRequest]:
    """Add requests with long, cached contexts and long outputs, so that the batches grow."""
    engine = config.engine
    context_tokens, output_tokens = min(2_500, engine.max_model_len // 2), 1_200
    means = capacity.means_of(config.workload, engine)
    token_s = engine.step.context_token_s * (context_tokens + output_tokens / 2)
    token_s += engine.step.sequence_s
    # The duration of a step is γ/(1 − s). γ is its fixed time, and s is the share of the duration
    # that depends on its tokens. Without the fault, s is `usual`. The fault increases s, but to
    # less than 0.9 if `usual` is at most 0.8.
    usual = config.rate_per_s * (means.prefill_s + means.output_tokens * token_s)
    free = max(0.9 - usual, 0.1)
    rate_per_s = free * capacity.target_utilisation(fault.severity, 0.4) / (output_tokens * token_s)
    tenant = config.workload.tenants[-1].name
    prefix = Prefix(f"{tenant}/handbook", context_tokens)
    for at_s in _poisson(chance, rate_per_s * config.replicas, fault.start_s, fault.end_s):
        yield SimulatedRequest(
            at_s=at_s,
            tenant=tenant,
            prompt_tokens=context_tokens + chance.randint(20, 200),
            output_tokens=round(output_tokens * chance.uniform(0.7, 1.3)),
            prefix=prefix,
        )


def _scaled_lengths(
    config: FleetConfig, request: SimulatedRequest, prompts: float, outputs: float
) -> SimulatedRequest:
    output_tokens = round(request.output_tokens * outputs)
    longest = config.engine.max_model_len
    output_tokens = min(output_tokens, longest // 2)
    prompt_tokens = min(round(request.prompt_tokens * prompts), longest - output_tokens)
    prefix = request.prefix
    if prefix is not None and prefix.tokens >= prompt_tokens:
        prefix = None
    leaves = request.leaves_after_tokens
    return replace(
        request,
        prompt_tokens=max(prompt_tokens, request.prompt_tokens if prompts >= 1 else 1),
        output_tokens=output_tokens,
        prefix=prefix,
        leaves_after_tokens=None if leaves is None else min(leaves, output_tokens),
    )


def longer_prompts(
    fault: SimulatedFault, config: FleetConfig, _chance: random.Random
) -> Callable[[SimulatedRequest], SimulatedRequest]:
    """Make all prompts longer. The additional tokens are not cached."""
    means = capacity.means_of(config.workload, config.engine)
    usual = config.rate_per_s * means.prefill_s
    more = max(0.6 - usual, 0.1) * capacity.target_utilisation(fault.severity, 1.0)
    # Engines compute shared prefixes only once, so `usual` does not include them. The fault
    # lengthens whole prompts, so `whole` includes them.
    token_s = config.engine.step.prefill_token_s
    whole = usual + config.rate_per_s * means.shared_tokens * token_s
    factor = min(1.0 + more / whole, 1.0 + 2.0 * fault.severity)
    return lambda request: _scaled_lengths(config, request, factor, 1.0)


def longer_outputs(
    fault: SimulatedFault, config: FleetConfig, _chance: random.Random
) -> Callable[[SimulatedRequest], SimulatedRequest]:
    """Make all outputs several times longer."""
    return lambda request: _scaled_lengths(config, request, 1.0, 1.0 + 1.8 * fault.severity)


def unique_prompts(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Callable[[SimulatedRequest], SimulatedRequest]:
    """Remove the shared prefix from some prompts. No part of these prompts is then cached."""
    share = min(1.0, 0.35 + 0.4 * fault.severity)
    talk = config.workload.conversations
    if talk is not None:
        # For each turn without a shared prefix, the engine computes the whole conversation again.
        # The capacity is not enough to do this for all turns.
        each = config.engine.step.prefill_s(round(talk.mean_tokens), 0)
        usual = config.rate_per_s * capacity.means_of(config.workload, config.engine).prefill_s
        free = max(0.1, 0.6 - (1 - talk.share) * usual)
        share = min(share, free / (config.rate_per_s * talk.share * each))

    def rewrite(request: SimulatedRequest) -> SimulatedRequest:
        return replace(request, prefix=None) if chance.random() < share else request

    return rewrite


def unloaded_adapters(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Callable[[SimulatedRequest], SimulatedRequest]:
    """Let some requests use adapters. There are so many adapters that each is rarely used."""
    means = capacity.means_of(config.workload, config.engine)
    together = capacity.running(config.engine, means, config.rate_per_s)
    slots = max(1, config.engine.max_loras - len(config.workload.loras))
    share = min(0.6, 0.75 * capacity.target_utilisation(fault.severity, 0.5) * slots / together)

    def rewrite(request: SimulatedRequest) -> SimulatedRequest:
        if chance.random() >= share:
            return request
        return replace(request, lora=f"rare-{chance.randrange(60)}")

    return rewrite


def new_schemas(
    fault: SimulatedFault, _config: FleetConfig, chance: random.Random
) -> Callable[[SimulatedRequest], SimulatedRequest]:
    """Let a third of the requests ask for structured output, each with a new schema.

    Compiling a grammar with many alternatives takes about a second.
    """

    def rewrite(request: SimulatedRequest) -> SimulatedRequest:
        if chance.random() >= 1 / 3:
            return request
        return replace(request, grammar_s=chance.uniform(0.5, 1.5) * fault.severity)

    return rewrite


def larger_images(
    fault: SimulatedFault, config: FleetConfig, _chance: random.Random
) -> Callable[[SimulatedRequest], SimulatedRequest]:
    """Let the encoder take much longer for each image. All images together take a limited share of
    the engines' time."""
    images_per_s = config.rate_per_s * config.workload.image_share
    added_s = min(
        2.0 * fault.severity, 0.15 * capacity.target_utilisation(fault.severity, 0.5) / images_per_s
    )

    def rewrite(request: SimulatedRequest) -> SimulatedRequest:
        if not request.encoder_s:
            return request
        return replace(request, encoder_s=request.encoder_s + added_s)

    return rewrite


def rejected_drafts(
    fault: SimulatedFault, _config: FleetConfig, chance: random.Random
) -> Callable[[SimulatedRequest], SimulatedRequest]:
    """Let some requests belong to a new task, which the draft model predicts badly."""
    share = min(1.0, 0.3 + 0.3 * fault.severity)

    def rewrite(request: SimulatedRequest) -> SimulatedRequest:
        return replace(request, acceptance=0.03) if chance.random() < share else request

    return rewrite


def slow_tenant(config: FleetConfig) -> str:
    """Add a tenant with a large share of the traffic, whose clients read slowly."""
    tenants = config.workload.tenants
    return tenants[min(1, len(tenants) - 1)].name


def slow_readers(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Callable[[SimulatedRequest], SimulatedRequest]:
    """Let one tenant's clients read more slowly than the engine generates."""
    tenant = slow_tenant(config)

    def rewrite(request: SimulatedRequest) -> SimulatedRequest:
        if request.tenant != tenant:
            return request
        rate = 20.0 / fault.severity * chance.uniform(0.6, 1.4)
        return replace(request, reads_tokens_per_s=rate)

    return rewrite
