"""Inject a retry storm: clients give up after a timeout, and retry immediately.

A burst fills the engines' batches, so that responses take longer than the timeout. Then the retries
keep the batches full. Source: Bronson et al., "Metastable Failures in Distributed Systems", HotOS
2021.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from simulator import capacity
from simulator.fault import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import SimulatedRequest

_TOO_LONG = 0.2
"""While the batch is full, this share of the responses takes longer than the timeout."""
_SPARE = 2.5
"""Number of batch slots, as a multiple of the usual number of running requests."""
_BURST_S = 4.0


def small_batches(config: FleetConfig) -> FleetConfig:
    """Give the servers small batches, which a few retries of each request fill."""
    means = capacity.means_of(config.workload, config.engine)
    running = capacity.running(config.engine, means, config.rate_per_s)
    seats = max(4, min(config.engine.max_num_seqs, round(_SPARE * running)))
    return replace(config, engine=replace(config.engine, max_num_seqs=seats))


def request_burst(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Iterator[SimulatedRequest]:
    """Fill the engines' batches within a few seconds."""
    seats = config.engine.max_num_seqs * config.replicas
    more = replace(config.workload, rate_per_s=1.2 * seats / _BURST_S, trace=())
    impatience = client_timeouts(fault, config, chance)
    until_s = min(fault.start_s + _BURST_S, fault.end_s)
    for request in more.arrivals(f"{chance.random()}", fault.start_s, until_s):
        yield impatience(request)


def client_timeouts(
    fault: SimulatedFault, config: FleetConfig, chance: random.Random
) -> Callable[[SimulatedRequest], SimulatedRequest]:
    """Let clients retry after a timeout, often enough to keep the batches full."""
    engine, workload = config.engine, config.workload
    means = capacity.means_of(workload, engine)
    if workload.trace:
        outputs = sorted(row.output_tokens for row in workload.trace)
        cut = float(outputs[round((1.0 - _TOO_LONG) * (len(outputs) - 1))])
    else:
        cut = float(workload.answers.quantile(1.0 - _TOO_LONG))
    step_s = capacity.step_s(engine, means, engine.max_num_seqs)
    timeout_s = means.prefill_s + cut * step_s
    retries = 2.0 + 2.0 * fault.severity

    def rewrite(request: SimulatedRequest) -> SimulatedRequest:
        return replace(
            request,
            prompt=f"retried/{chance.getrandbits(64)}",
            timeout_s=timeout_s,
            retries=round(retries),
        )

    return rewrite
