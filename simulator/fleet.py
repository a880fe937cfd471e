"""Simulate a fleet of replicas behind a router in virtual time, in steps of one second. Pure. The
configuration and its seed determine every record and sample."""

import heapq
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import attrgetter

from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.request.record import RequestRecord

from replay.step_clock import Stall
from simulator.conditions import ConditionChange, Event, Restart
from simulator.disaggregation import Disaggregation, RoutedRequest
from simulator.faults import INJECTIONS, world_of
from simulator.fleet_config import FleetConfig, Router
from simulator.replica import SimulatedReplica
from simulator.routing import Routing
from simulator.workload import SimulatedRequest
from telemetry.gpus import GpuSample

__all__ = ["FleetConfig", "ReplicaSecond", "Router", "Second", "simulate"]

SAMPLE_S = 1.0
"""Seconds between two samples, as in the instrumentation."""


@dataclass(frozen=True, slots=True)
class ReplicaSecond:
    """The telemetry of one replica in one second."""

    replica: str
    region: str
    records: list[RequestRecord]
    """The requests that ended, in the order of their ends."""
    state: EngineState | None
    """The state at the end of the second, or None if the server is down."""
    gpus: tuple[GpuSample, ...]


@dataclass(frozen=True, slots=True)
class Second:
    """The telemetry of the fleet in the second that ends at `at_s`."""

    at_s: float
    replicas: tuple[ReplicaSecond, ...]
    routed: tuple[RoutedRequest, ...] = ()
    """The requests that the router answered. Without prefill replicas, there are none."""
    lost: int = 0
    """The number of requests that arrived while no server was up, since the start."""


def simulate(config: FleetConfig) -> Iterator[Second]:
    """Simulate the fleet until every request has ended. Everything that its faults require is added
    to the fleet."""
    yield from _Fleet(world_of(config)).seconds()


class _Fleet:
    def __init__(self, config: FleetConfig) -> None:
        self._config = config
        trace = config.workload.trace
        ends_s = trace[-1].at_s + SAMPLE_S if trace else float("inf")
        self._limit_s = ends_s if config.duration_s is None else config.duration_s
        self._replicas = [self._replica(number) for number in range(config.replicas)]
        self._outboxes: list[list[RequestRecord]] = [[] for _ in self._replicas]
        self._pools = (
            Disaggregation(config, self._replicas, self._keep) if config.prefill_replicas else None
        )
        self._routing = Routing(config.router, random.Random(f"{config.seed}:routing"))
        self._coming = heapq.merge(self._arrivals(), *self._events(), key=attrgetter("at_s"))
        self._next: SimulatedRequest | Event | None = next(self._coming, None)
        self._deadlines: list[tuple[float, int, int]] = []
        """A heap of the clients' timeouts: instant, replica, number of the request."""
        self._lost = 0

    def seconds(self) -> Iterator[Second]:
        second = 0
        while self._next is not None or self._busy():
            second += 1
            end = second * SAMPLE_S
            while self._next is not None and self._next.at_s < end:
                self._let_give_up(self._next.at_s)
                self._advance(self._next.at_s)
                self._meet(self._next)
                self._next = next(self._coming, None)
            self._let_give_up(end)
            self._advance(end)
            yield Second(end, tuple(self._report_second(end)), self._routed(end), self._lost)

    def _busy(self) -> bool:
        if self._pools is not None and self._pools.busy:
            return True
        return any(self._outboxes) or any(replica.outstanding for replica in self._replicas)

    def _keep(self, replica: SimulatedReplica, records: Sequence[RequestRecord]) -> None:
        self._outboxes[self._replicas.index(replica)].extend(records)

    def _advance(self, until: float) -> None:
        if self._pools is not None:
            self._pools.advance(until)
            return
        for replica in self._replicas:
            self._take(replica, replica.advance(until))

    def _take(self, replica: SimulatedReplica, records: Sequence[RequestRecord]) -> None:
        if self._pools is not None:
            self._pools.take(replica, records)
        else:
            self._keep(replica, records)

    def _meet(self, coming: SimulatedRequest | Event) -> None:
        if isinstance(coming, ConditionChange):
            self._replicas[coming.replica].change(coming)
        elif isinstance(coming, Restart):
            stopped = self._replicas[coming.replica]
            self._take(stopped, stopped.stop(coming))
        elif self._pools is not None:
            self._pools.receive(coming)
        else:
            chosen = self._routing.choose(self._replicas, coming)
            if chosen is None:
                self._lost += 1
                return
            refused, place = chosen.receive(coming), self._replicas.index(chosen)
            if refused is not None:
                self._outboxes[place].append(refused)
            elif coming.timeout_s is not None:
                deadline = (coming.at_s + coming.timeout_s, place, chosen.newest)
                heapq.heappush(self._deadlines, deadline)

    def _let_give_up(self, until: float) -> None:
        while self._deadlines and self._deadlines[0][0] < until:
            at_s, place, number = heapq.heappop(self._deadlines)
            self._advance(at_s)
            request, records = self._replicas[place].give_up(number, at_s)
            self._outboxes[place].extend(records)
            if request is not None and request.retries:
                self._meet(replace(request, at_s=at_s, retries=request.retries - 1))

    def _report_second(self, end: float) -> Iterator[ReplicaSecond]:
        for replica, outbox in zip(self._replicas, self._outboxes, strict=True):
            delivered = sorted(
                (record for record in outbox if record.delivered <= end),
                key=attrgetter("delivered"),
            )
            outbox[:] = [record for record in outbox if record.delivered > end]
            gpus = replica.gpus(end)
            yield ReplicaSecond(replica.name, replica.region, delivered, replica.state(end), gpus)

    def _routed(self, end: float) -> tuple[RoutedRequest, ...]:
        if self._pools is None:
            return ()
        self._lost, ended = self._pools.lost, self._pools.ended
        self._pools.ended = [each for each in ended if each.ended_s > end]
        return tuple(each for each in ended if each.ended_s <= end)

    def _replica(self, number: int) -> SimulatedReplica:
        config = self._config
        name = config.name_of(number)
        return SimulatedReplica(
            name,
            config.regions[number % len(config.regions)],
            config.model,
            config.engine_of(number),
            f"{config.seed}:{name}",
            self._stalls_of(name),
            config.started_unix_ns,
        )

    def _stalls_of(self, replica: str) -> Callable[[float], Iterable[Stall]]:
        def stalls(from_s: float) -> Iterator[Stall]:
            streams = []
            for number, fault in enumerate(self._config.faults):
                inject = INJECTIONS[fault.cause].stalls
                if inject is not None:
                    chance = random.Random(f"{self._config.seed}:fault:{number}:{replica}")
                    streams.append(inject(fault, chance))
            merged = heapq.merge(*streams, key=attrgetter("at_s"))
            return (stall for stall in merged if stall.at_s >= from_s)

        return stalls

    def _arrivals(self) -> Iterator[SimulatedRequest]:
        config = self._config
        streams = [self._ordinary()]
        for number, fault in enumerate(config.faults):
            inject = INJECTIONS[fault.cause].arrivals
            if inject is not None:
                chance = random.Random(f"{config.seed}:fault:{number}")
                streams.append(inject(fault, config, chance))
        for request in heapq.merge(*streams, key=attrgetter("at_s")):
            if request.at_s >= self._limit_s:
                return
            yield request

    def _ordinary(self) -> Iterator[SimulatedRequest]:
        config = self._config
        rewrites = []
        for number, fault in enumerate(config.faults):
            rewrite = INJECTIONS[fault.cause].rewrite
            if rewrite is not None:
                chance = random.Random(f"{config.seed}:rewrite:{number}")
                rewrites.append((fault, rewrite(fault, config, chance)))
        for request in config.workload.arrivals(f"{config.seed}:workload"):
            for fault, change in rewrites:
                if fault.start_s <= request.at_s < fault.end_s:
                    request = change(request)
            yield request

    def _events(self) -> Iterator[Iterator[Event]]:
        if self._config.foreign is not None:
            for number in range(self._config.replicas):
                seed = f"{self._config.seed}:world:{number}"
                yield self._until_the_end(self._config.foreign.events(number, seed))
        for number, fault in enumerate(self._config.faults):
            inject = INJECTIONS[fault.cause].events
            if inject is not None:
                chance = random.Random(f"{self._config.seed}:events:{number}")
                events = inject(fault, self._config, chance)
                yield self._until_the_end(
                    replace(event, source=number) if isinstance(event, ConditionChange) else event
                    for event in events
                )

    def _until_the_end(self, events: Iterator[Event]) -> Iterator[Event]:
        return takewhile(lambda event: event.at_s < self._limit_s, events)
