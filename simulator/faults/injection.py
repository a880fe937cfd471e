"""The description of a fault: its effects, and where they appear."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from simulator.conditions import Event
from simulator.fault import Fault
from simulator.fleet_config import FleetConfig
from simulator.step_clock import Stall
from simulator.workload import Request

Latency = Literal["ttft_s", "itl_max_s", "tpot_s", "e2e_s"]

World = Callable[[FleetConfig], FleetConfig]
Arrivals = Callable[[Fault, FleetConfig, random.Random], Iterator[Request]]
Rewrite = Callable[[Fault, FleetConfig, random.Random], Callable[[Request], Request]]
Events = Callable[[Fault, FleetConfig, random.Random], Iterator[Event]]
Stalls = Callable[[Fault, random.Random], Iterator[Stall]]
Hurts = Callable[[Fault, FleetConfig], Latency]
Where = Callable[[Fault, FleetConfig], dict[str, str]]


def everywhere(_fault: Fault, _config: FleetConfig) -> dict[str, str]:
    """A fault that no label distinguishes."""
    return {}


def on_its_replica(fault: Fault, config: FleetConfig) -> dict[str, str]:
    """A fault of one replica."""
    return {"replica": config.name_of(fault.replica % config.replicas)}


def by_the_first_tenant(_fault: Fault, config: FleetConfig) -> dict[str, str]:
    """A fault that one tenant causes."""
    return {"tenant": config.workload.tenants[0].name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One cause. It changes the simulated world; the slow tail follows from that.

    Args:
        summary: the fault in one sentence.
        hurts: the latency that gets worse.
        shows: the columns that contain the excess.
        world: what the fleet must have, from the beginning.
        needs: the same in words.
        arrivals: additional requests.
        rewrite: changes ordinary requests while it is active.
        events: changes of server conditions, and restarts.
        stalls: when each engine stands still.
        hurts_else: returns the latency if it is not always the same.
        where: the labels of the affected requests or of the origin.
    """

    summary: str
    hurts: Latency
    shows: tuple[str, ...]
    world: World | None = None
    needs: str = ""
    arrivals: Arrivals | None = None
    rewrite: Rewrite | None = None
    events: Events | None = None
    stalls: Stalls | None = None
    where: Where = everywhere
    hurts_else: Hurts | None = None

    def hurt_by(self, fault: Fault, config: FleetConfig) -> Latency:
        """Return the latency that this fault makes worse."""
        return self.hurts if self.hurts_else is None else self.hurts_else(fault, config)
