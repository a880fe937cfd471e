"""Simulate a fleet in which different servers compute prefill and decode. Pure. The router sends
each request first to a prefill server, and then to a decode server.

The prefill server generates one token. The decode server then loads the KV cache of the prompt. If
the prefill fails, the client gets the error.
"""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tailspan_vllm.request.record import RequestRecord

from simulator.fleet_config import FleetConfig
from simulator.replica import SimulatedReplica
from simulator.routing import Routing
from simulator.workload import SimulatedHop, SimulatedRequest

ROUTE_S: Final = 0.0015
"""Seconds that the router needs before it sends a request, and before it returns a response. The
value is chosen, not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedRequest:
    """A request at the router. Times are in virtual seconds."""

    bits: int
    """The request's id as a number. It is also the trace id."""
    began_s: float
    ended_s: float
    first_byte_s: float | None
    chat: bool


@dataclass(frozen=True, slots=True)
class _Pool:
    replicas: Sequence[SimulatedReplica]
    routing: Routing


Keep = Callable[[SimulatedReplica, Sequence[RequestRecord]], None]


class Disaggregation:
    """The router of a fleet with a prefill pool and a decode pool.

    The prefill pool is simulated first, because a prefill never waits for a decode server.

    Args:
        replicas: all servers, the prefill servers first.
    """

    def __init__(
        self, config: FleetConfig, replicas: Sequence[SimulatedReplica], keep: Keep
    ) -> None:
        number = config.prefill_replicas
        self._prefill, self._decode = (
            _Pool(pool, Routing(config.router, random.Random(f"{config.seed}:routing:{name}")))
            for name, pool in (("prefill", replicas[:number]), ("decode", replicas[number:]))
        )
        self._keep = keep
        self._ids = random.Random(f"{config.seed}:ids")
        self._open: dict[int, SimulatedRequest] = {}
        self._coming: list[tuple[float, int]] = []
        """A heap of prefilled requests: (arrival at the decode server, id)."""
        self.ended: list[RoutedRequest] = []
        """The answered requests. The caller empties this list."""
        self.lost = 0
        """Requests for which no server was up."""

    @property
    def busy(self) -> bool:
        """Whether any request has not ended."""
        return bool(self._open or self.ended)

    def receive(self, request: SimulatedRequest) -> None:
        """Receive a client's request, after `advance` to its time."""
        bits = self._ids.getrandbits(128) or 1
        self._open[bits] = request
        only_prompt = replace(
            request,
            at_s=request.at_s + ROUTE_S,
            output_tokens=1,
            cut=True,
            streamed=False,
            leaves_after_tokens=None,
            reads_tokens_per_s=None,
            hop=SimulatedHop(bits, False),
        )
        self._send(self._prefill, only_prompt, bits)

    def advance(self, until: float) -> None:
        """Simulate both pools until the virtual time `until`."""
        for replica in self._prefill.replicas:
            self.take(replica, replica.advance(until))
        while self._coming and self._coming[0][0] < until:
            at_s, bits = heapq.heappop(self._coming)
            self._advance_decode(at_s)
            request = replace(self._open[bits], at_s=at_s, hop=SimulatedHop(bits, True))
            self._send(self._decode, request, bits)
        self._advance_decode(until)

    def take(self, replica: SimulatedReplica, records: Sequence[RequestRecord]) -> None:
        """Process the records of requests that ended at a server."""
        self._keep(replica, records)
        prefills = replica in self._prefill.replicas
        for record in records:
            bits = record.trace_id
            assert bits is not None
            if prefills and record.outcome == "length":
                heapq.heappush(self._coming, (record.delivered + ROUTE_S, bits))
            else:
                self._answer(bits, record)

    def _advance_decode(self, until: float) -> None:
        for replica in self._decode.replicas:
            self.take(replica, replica.advance(until))

    def _send(self, pool: _Pool, request: SimulatedRequest, bits: int) -> None:
        chosen = pool.routing.choose(pool.replicas, request)
        if chosen is None:
            self.lost += 1
            del self._open[bits]
        elif (refused := chosen.receive(request)) is not None:
            self.take(chosen, [refused])

    def _answer(self, bits: int, record: RequestRecord) -> None:
        request = self._open.pop(bits)
        first_s = record.first_byte
        self.ended.append(
            RoutedRequest(
                bits=bits,
                began_s=request.at_s,
                ended_s=record.delivered + ROUTE_S,
                first_byte_s=None if first_s is None else first_s + ROUTE_S,
                chat=request.chat,
            )
        )
