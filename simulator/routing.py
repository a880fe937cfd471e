"""The router, which chooses the replica for each request. Pure.

Replicas that are down get no requests. Equally loaded replicas are chosen in turn, so that an idle
fleet uses all of them.
"""

import random
import zlib
from collections.abc import Sequence

from replay.routing import least_outstanding
from simulator.fleet_config import Router
from simulator.replica import SimulatedReplica
from simulator.workload import SimulatedRequest

_AFFINITY_SLACK = 12
"""The prefix-aware router prefers the replica with the request's prefix. If this replica has over
12 requests more than the least loaded replica, the router chooses the least loaded replica."""


class Routing:
    """The router of one fleet. `chance` selects the requests that a fault redirects."""

    def __init__(self, router: Router, chance: random.Random) -> None:
        self._router = router
        self._chance = chance
        self._turn = 0

    def choose(
        self, replicas: Sequence[SimulatedReplica], request: SimulatedRequest
    ) -> SimulatedReplica | None:
        """The replica for a request, or None if all replicas are down."""
        turn = self._turn
        self._turn += 1
        up = [replica for replica in replicas if replica.up]
        if not up:
            return None
        for replica in up:
            pull = replica.conditions.total("pull")
            if pull and self._chance.random() < pull:
                return replica
        at = turn % len(up)
        if self._router == "round_robin":
            return up[at]
        freest = up[least_outstanding([replica.outstanding for replica in up], turn)]
        if self._router == "least_outstanding" or request.prefix is None:
            return freest
        own = up[zlib.crc32(request.prefix.name.encode()) % len(up)]
        return own if own.outstanding <= freest.outstanding + _AFFINITY_SLACK else freest
