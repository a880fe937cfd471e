"""Faults of machines, such as slowness, stalls, restarts and skewed routing."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from replay.front_end import FrontEndModel
from replay.step_clock import Stall
from simulator import capacity
from simulator.conditions import ConditionChange, Event, Key, Restart, in_time
from simulator.fault import SimulatedFault
from simulator.fleet_config import FleetConfig
from telemetry.engines import HUNG_S

_KEYS: dict[str, Key] = {
    "pace": "pace",
    "rank_pace": "rank_pace",
    "clock": "clock",
    "frontend_pace": "frontend_pace",
    "link_pace": "link_pace",
    "pull": "pull",
}


def _while_it_lasts(fault: SimulatedFault, replica: int, **values: float) -> Iterator[Event]:
    for name, value in values.items():
        yield ConditionChange(fault.start_s, replica, _KEYS[name], value)
    if fault.end_s < float("inf"):
        for name in values:
            usual = 0.0 if name == "pull" else 1.0
            yield ConditionChange(fault.end_s, replica, _KEYS[name], usual)


def _everywhere(fault: SimulatedFault, config: FleetConfig, **values: float) -> Iterator[Event]:
    each = (_while_it_lasts(fault, replica, **values) for replica in range(config.replicas))
    return in_time(chain.from_iterable(each))


def _slower(fault: SimulatedFault) -> float:
    return 1.0 + 1.3 * fault.severity


def throttled(
    fault: SimulatedFault, config: FleetConfig, _chance: random.Random
) -> Iterator[Event]:
    """Throttle a GPU's clock."""
    factor = _slower(fault)
    yield from _while_it_lasts(fault, fault.replica % config.replicas, pace=factor, clock=factor)


def busy_gpu(fault: SimulatedFault, config: FleetConfig, chance: random.Random) -> Iterator[Event]:
    """Run a second process on a GPU most of the time."""
    replica, at_s = fault.replica % config.replicas, fault.start_s
    while at_s < fault.end_s:
        busy_s, idle_s = chance.uniform(15.0, 40.0), chance.uniform(1.0, 6.0)
        until_s = min(at_s + busy_s, fault.end_s)
        pace = 1.0 + (_slower(fault) - 1.0) * chance.uniform(0.8, 1.3)
        yield ConditionChange(at_s, replica, "pace", pace)
        yield ConditionChange(at_s, replica, "foreign", 1.0)
        yield ConditionChange(until_s, replica, "pace", 1.0)
        yield ConditionChange(until_s, replica, "foreign", 0.0)
        at_s = until_s + idle_s


def slow_rank(
    fault: SimulatedFault, config: FleetConfig, _chance: random.Random
) -> Iterator[Event]:
    """Slow down one GPU of a replica. In each step, the replica's other GPUs wait for it."""
    yield from _while_it_lasts(fault, fault.replica % config.replicas, rank_pace=_slower(fault))


def several_ranks(config: FleetConfig) -> FleetConfig:
    """Let each replica use at least four GPUs."""
    ranks = max(config.engine.tensor_parallel_size, 4)
    return replace(config, engine=replace(config.engine, tensor_parallel_size=ranks))


def pauses(fault: SimulatedFault, chance: random.Random) -> Iterator[Stall]:
    """Stop the engine for about half a second, about three times a minute."""
    at_s = fault.start_s
    while (at_s := at_s + chance.expovariate(0.05)) < fault.end_s:
        yield Stall(at_s, chance.uniform(0.3, 0.7) * fault.severity)


def cold_starts(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Iterator[Event]:
    """Restart a server repeatedly. Its cache is then empty, and new batch shapes take longer."""
    at_s = fault.start_s
    while at_s < fault.end_s:
        down_s = chance.uniform(8.0, 14.0)
        yield Restart(
            at_s,
            fault.replica % config.replicas,
            down_s,
            new_shape_s=0.35 * fault.severity,
        )
        at_s += chance.uniform(70.0, 90.0)


def hangs(fault: SimulatedFault, config: FleetConfig, chance: random.Random) -> Iterator[Event]:
    """Hang an engine and restart its server, repeatedly.

    At a restart, the engine's requests fail. The last restart is before the end of the simulation.
    """
    replica, trace = fault.replica % config.replicas, config.workload.trace
    ends_s = trace[-1].at_s if trace else float("inf")
    ends_s = min(fault.end_s, (ends_s if config.duration_s is None else config.duration_s) - 1.0)
    at_s = fault.start_s
    while at_s < ends_s:
        until_s = min(at_s + HUNG_S * (1.0 + fault.severity), ends_s)
        yield ConditionChange(at_s, replica, "hung", 1.0)
        # The restart is before the end of the hang, so that the old engine takes no further step.
        yield Restart(until_s, replica, chance.uniform(8.0, 14.0))
        yield ConditionChange(until_s, replica, "hung", 0.0)
        at_s = until_s + chance.uniform(70.0, 90.0)


def busy_front_end(
    fault: SimulatedFault, config: FleetConfig, _chance: random.Random
) -> Iterator[Event]:
    """Give the API servers only a small share of a CPU core."""
    means = capacity.means_of(config.workload, config.engine)
    usual = config.rate_per_s * FrontEndModel().request_s(means.prompt_tokens)
    factor = max(5.0, 0.9 * capacity.target_utilisation(fault.severity, 0.3) / usual)
    yield from _everywhere(fault, config, frontend_pace=factor)


def slow_transfers(
    fault: SimulatedFault, config: FleetConfig, _chance: random.Random
) -> Iterator[Event]:
    """Slow down the network that transfers KV caches."""
    yield from _everywhere(fault, config, link_pace=1.0 + 20.0 * fault.severity)


def loading_pool(_fault: SimulatedFault, config: FleetConfig) -> dict[str, str]:
    """The label of the pool that loads KV caches, if there is such a pool."""
    return {"pool": "decode"} if config.prefill_replicas else {}


def fetched_caches(config: FleetConfig) -> FleetConfig:
    """Load the KV caches of prompts from other servers."""
    return replace(config, engine=replace(config.engine, kv_connector=True))


def imbalanced_routing(
    fault: SimulatedFault, config: FleetConfig, _chance: random.Random
) -> Iterator[Event]:
    """Send most of the traffic to one replica, up to its capacity."""
    means = capacity.means_of(config.workload, config.engine)
    can_carry = capacity.capacity_per_s(config.engine, means)
    wanted = can_carry * capacity.target_utilisation(fault.severity, 0.12)
    pull = min(0.97, max(0.0, wanted / config.workload.rate_per_s))
    yield from _while_it_lasts(fault, fault.replica % config.replicas, pull=pull)


def four_replicas(config: FleetConfig) -> FleetConfig:
    """Return at least four replicas with the same load each. One replica can then be much slower
    than the other replicas."""
    if config.replicas >= 4:
        return config
    workload = config.workload
    if not workload.trace:
        workload = replace(workload, rate_per_s=config.rate_per_s * 4)
    return replace(config, replicas=4, workload=workload)
