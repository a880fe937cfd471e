"""All faults of a real server, named after the cause that the diagnosis should find."""

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


def faults_of(
    causes: Sequence[str],
    seed: int,
    severity: float,
    rate_per_s: float = 8.0,
    output_tokens: tuple[int, int] = (16, 40),
) -> list[ServerFault]:
    """The faults with these causes or pairs of causes, during usual traffic.

    A fault has the same random values, whether it is alone or part of a pair.

    Args:
        rate_per_s: mean rate of the usual traffic. The seed changes the rate by up to 1/16.
        output_tokens: minimum and maximum output tokens of a usual request.
    """
    usual = PlannedTraffic(
        rate_per_s=rate_per_s * random.Random(seed).uniform(15 / 16, 17 / 16),
        output_tokens=output_tokens,
    )

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
