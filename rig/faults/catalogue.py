"""All faults that can be produced on a real server, by the cause that the diagnosis should find."""

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rig.faults import cpu_hogs, freezes, no_incident, prompts, rates, responses, restarts
from rig.faults.combined_faults import AND, together
from rig.faults.fault import Make, ServerFault
from rig.faults.traffic import PlannedTraffic

FAULTS: Final[Mapping[str, Make]] = MappingProxyType(
    {
        make.__name__: make
        for make in (
            rates.load_exceeds_capacity,
            rates.tenant_flood,
            prompts.prefill_interference,
            prompts.long_prompt_blocking,
            prompts.longer_prompts,
            prompts.prefix_cache_miss,
            prompts.frontend_cpu,
            responses.longer_outputs,
            responses.network_or_client,
            freezes.engine_stall,
            cpu_hogs.noisy_neighbour,
            rates.decode_batch_growth,
            rates.kv_cache_exhausted,
            rates.preemption,
            restarts.cold_start,
            restarts.config_change,
            no_incident.no_incident,
        )
    }
)


def faults_of(causes: Sequence[str], seed: int, severity: float) -> list[ServerFault]:
    """Return the faults with these causes or pairs of causes, during usual traffic.

    The random values of a fault are the same, whether the fault is alone or in a pair.
    """
    usual = PlannedTraffic(rate_per_s=random.Random(seed).uniform(7.5, 8.5))

    def made(cause: str, traffic: PlannedTraffic) -> ServerFault:
        return FAULTS[cause](random.Random(f"{seed}/{cause}"), severity, traffic)

    found = []
    for name in causes:
        first, *others = name.split(AND)
        fault = made(first, usual)
        for other in others:
            fault = together(fault, made(other, fault.during))
        found.append(fault)
    return found
