"""Define how a fault is injected, and in which columns and labels it becomes visible."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from replay.step_clock import Stall
from simulator.conditions import Event
from simulator.fault import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import SimulatedRequest

Latency = Literal["ttft_s", "itl_max_s", "tpot_s", "e2e_s"]

World = Callable[[FleetConfig], FleetConfig]
Arrivals = Callable[[SimulatedFault, FleetConfig, random.Random], Iterator[SimulatedRequest]]
Rewrite = Callable[
    [SimulatedFault, FleetConfig, random.Random], Callable[[SimulatedRequest], SimulatedRequest]
]
Events = Callable[[SimulatedFault, FleetConfig, random.Random], Iterator[Event]]
Stalls = Callable[[SimulatedFault, random.Random], Iterator[Stall]]
Affects = Callable[[SimulatedFault, FleetConfig], Latency]
Where = Callable[[SimulatedFault, FleetConfig], dict[str, str]]


def everywhere(_fault: SimulatedFault, _config: FleetConfig) -> dict[str, str]:
    """Return no labels, because the fault affects all requests."""
    return {}


def on_its_replica(fault: SimulatedFault, config: FleetConfig) -> dict[str, str]:
    """The label of the fault's replica."""
    return {"replica": config.name_of(fault.replica % config.replicas)}


def by_the_first_tenant(_fault: SimulatedFault, config: FleetConfig) -> dict[str, str]:
    """The label of the first tenant, which causes the fault."""
    return {"tenant": config.workload.tenants[0].name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """How a cause is injected.

    Args:
        affects, affects_else: the latency that becomes longer, or a function that returns this
            latency.
        shows: the request columns that contain the added time.
        world, needs: a function that adds to the fleet everything that the fault requires, and a
            description of these additions.
        arrivals: returns additional requests.
        rewrite: returns a function that changes ordinary requests during the fault.
        events: returns changed conditions and restarts.
        stalls: returns the times at which engines stop.
        where: returns the labels of the affected requests, or of the requests that cause the fault.
    """

    summary: str
    affects: Latency
    shows: tuple[str, ...]
    world: World | None = None
    needs: str = ""
    arrivals: Arrivals | None = None
    rewrite: Rewrite | None = None
    events: Events | None = None
    stalls: Stalls | None = None
    where: Where = everywhere
    affects_else: Affects | None = None

    def affected_latency(self, fault: SimulatedFault, config: FleetConfig) -> Latency:
        """The latency that becomes longer."""
        return self.affects if self.affects_else is None else self.affects_else(fault, config)
