"""Two faults: a deploy with a changed flag, and too few KV blocks."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from replay.engine_config import EngineConfig
from simulator import capacity
from simulator.conditions import ConditionChange, Event, Restart, in_time
from simulator.fault import SimulatedFault
from simulator.faults.injection import Latency
from simulator.faults.traffic import longer_outputs
from simulator.fleet_config import FleetConfig
from simulator.workload import SimulatedRequest

_LONGER = 3.0


def _blocks_left(fault: SimulatedFault, config: FleetConfig, blocks_left: float) -> Iterator[Event]:
    lost = max(0, config.engine.num_gpu_blocks - round(blocks_left))
    numbers = range(config.replicas)
    yield from (ConditionChange(fault.start_s, number, "lost_blocks", lost) for number in numbers)
    if fault.end_s < float("inf"):
        yield from (ConditionChange(fault.end_s, number, "lost_blocks", 0.0) for number in numbers)


def few_blocks(
    fault: SimulatedFault, config: FleetConfig, _chance: random.Random
) -> Iterator[Event]:
    """Leave slightly more KV blocks than the running requests need on average."""
    means = capacity.means_of(config.workload, config.engine)
    running = capacity.running(config.engine, means, config.rate_per_s)
    blocks_left = capacity.required_blocks(means, running, 1.6 / fault.severity)
    yield from _blocks_left(fault, config, blocks_left)


def outgrown_blocks(
    fault: SimulatedFault, config: FleetConfig, _chance: random.Random
) -> Iterator[Event]:
    """Leave fewer KV blocks than longer outputs need."""
    means = capacity.means_of(config.workload, config.engine).stretched(outputs=_LONGER)
    running = capacity.running(config.engine, means, config.rate_per_s)
    blocks_left = capacity.required_blocks(means, running, 0.9 / fault.severity)
    yield from _blocks_left(fault, config, blocks_left)


def outgrowing_answers(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Callable[[SimulatedRequest], SimulatedRequest]:
    """Make all outputs several times longer."""
    return longer_outputs(replace(fault, severity=(_LONGER - 1.0) / 1.8), config, chance)


def _changed_flag(fault: SimulatedFault, config: FleetConfig) -> tuple[str, EngineConfig]:
    """The flag that the deploy changes, and the new arguments. The fault's seed and start time
    determine which flag is changed."""
    engine = config.engine
    if (config.seed + round(fault.start_s)) % 2 and not engine.enforce_eager:
        return "model.enforce_eager", replace(engine, enforce_eager=True)
    means = capacity.means_of(config.workload, engine)
    running = capacity.running(engine, means, config.rate_per_s)
    seats = max(2, round(running / capacity.target_utilisation(fault.severity, 0.06)))
    changed = replace(engine, max_num_seqs=min(seats, engine.max_num_seqs))
    return "scheduler.max_num_seqs", changed


def deploy(fault: SimulatedFault, config: FleetConfig, _chance: random.Random) -> Iterator[Event]:
    """Restart the replicas one by one with a changed flag. At the end of the fault, restart them
    with the original flag."""
    _, changed = _changed_flag(fault, config)
    turns = [(fault.start_s, changed)]
    if fault.end_s < float("inf"):
        turns.append((fault.end_s, config.engine))
    yield from in_time(
        Restart(from_s + 8.0 * replica, replica, 6.0, engine)
        for from_s, engine in turns
        for replica in range(config.replicas)
    )


def flag_label(fault: SimulatedFault, config: FleetConfig) -> dict[str, str]:
    """The changed flag as a label."""
    return {"argument": _changed_flag(fault, config)[0]}


def affected_latency(fault: SimulatedFault, config: FleetConfig) -> Latency:
    """The latency that the changed flag makes longer."""
    name, _ = _changed_flag(fault, config)
    return "tpot_s" if name == "model.enforce_eager" else "ttft_s"
