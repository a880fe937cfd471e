"""A fleet in virtual time: replicas behind a router, told second by second.

Pure: the configuration and its seed decide every record and sample.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Literal, get_args

from tailspan_vllm.metrics import EngineState
from tailspan_vllm.record import RequestRecord

from simulator.engine import EngineConfig, Stall
from simulator.faults import INJECTIONS, Fault
from simulator.replica import Replica
from simulator.workload import Request, Workload

Router = Literal["least_outstanding", "round_robin"]

REGIONS = ("eu-west-1", "us-east-1")

SAMPLE_S = 1.0
"""One sample of each engine per second, as the instrumentation takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfig:
    """All that decides a simulation."""

    replicas: int = 2
    workload: Workload = field(default_factory=lambda: Workload(rate_per_s=10.0))
    """Of the whole fleet."""
    faults: tuple[Fault, ...] = ()
    engine: EngineConfig = field(default_factory=EngineConfig)
    router: Router = "least_outstanding"
    regions: tuple[str, ...] = REGIONS
    """Replicas are dealt out over them in turn."""
    model: str = "llama-3-8b-sim"
    seed: int = 1
    duration_s: float | None = None
    """How long requests arrive; None = for ever."""
    started_unix_ns: int = 0
    """The wall clock at virtual 0."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"replicas: {self.replicas}; allowed: 1 or more")
        if self.router not in get_args(Router):
            raise ValueError(f"router: {self.router!r}; allowed: {', '.join(get_args(Router))}")
        if not self.regions:
            raise ValueError("regions: none; allowed: one or more")
        if self.duration_s is not None and not self.duration_s > 0:
            raise ValueError(f"duration_s: {self.duration_s}; allowed: more than 0, or None")


@dataclass(frozen=True, slots=True)
class ReplicaSecond:
    """What one replica told in one second."""

    replica: str
    region: str
    records: list[RequestRecord]
    """Requests delivered in this second, in that order."""
    state: EngineState


@dataclass(frozen=True, slots=True)
class Second:
    """One second of the fleet, ending at virtual `at_s`."""

    at_s: float
    replicas: tuple[ReplicaSecond, ...]


def simulate(config: FleetConfig) -> Iterator[Second]:
    """Run the fleet, a second at a time, until every request has ended."""
    replicas = [_replica(config, number) for number in range(config.replicas)]
    outboxes: list[list[RequestRecord]] = [[] for _ in replicas]
    arrivals = _arrivals(config)
    coming = next(arrivals, None)
    second = turn = 0
    while coming is not None or any(outboxes) or any(r.outstanding for r in replicas):
        second += 1
        end = second * SAMPLE_S
        while coming is not None and coming.at_s < end:
            for replica, outbox in zip(replicas, outboxes, strict=True):
                outbox.extend(replica.advance(coming.at_s))
            chosen = _route(config.router, replicas, turn)
            turn += 1
            refused = replicas[chosen].receive(coming)
            if refused is not None:
                outboxes[chosen].append(refused)
            coming = next(arrivals, None)
        told = []
        for replica, outbox in zip(replicas, outboxes, strict=True):
            outbox.extend(replica.advance(end))
            delivered = sorted(
                (record for record in outbox if record.delivered <= end),
                key=attrgetter("delivered"),
            )
            outbox[:] = [record for record in outbox if record.delivered > end]
            told.append(ReplicaSecond(replica.name, replica.region, delivered, replica.state()))
        yield Second(end, tuple(told))


def _replica(config: FleetConfig, number: int) -> Replica:
    name = f"sim-{number}"
    return Replica(
        name,
        config.regions[number % len(config.regions)],
        config.model,
        config.engine,
        f"{config.seed}:{name}",
        _stalls(config, name),
        config.started_unix_ns,
    )


def _arrivals(config: FleetConfig) -> Iterator[Request]:
    streams = [config.workload.arrivals(f"{config.seed}:workload")]
    for number, fault in enumerate(config.faults):
        inject = INJECTIONS[fault.cause].arrivals
        if inject is not None:
            streams.append(inject(fault, config.workload, f"{config.seed}:fault:{number}"))
    limit_s = float("inf") if config.duration_s is None else config.duration_s
    for request in heapq.merge(*streams, key=attrgetter("at_s")):
        if request.at_s >= limit_s:
            return
        yield request


def _stalls(config: FleetConfig, replica: str) -> Iterator[Stall]:
    streams = []
    for number, fault in enumerate(config.faults):
        inject = INJECTIONS[fault.cause].stalls
        if inject is not None:
            streams.append(inject(fault, f"{config.seed}:fault:{number}:{replica}"))
    return heapq.merge(*streams, key=attrgetter("at_s"))


def _route(router: Router, replicas: list[Replica], turn: int) -> int:
    if router == "round_robin":
        return turn % len(replicas)
    # Equals take turns: always the first would starve the last of an idle fleet.
    numbers = chain(range(turn % len(replicas), len(replicas)), range(turn % len(replicas)))
    return min(numbers, key=lambda number: replicas[number].outstanding)
