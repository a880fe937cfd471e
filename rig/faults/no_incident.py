"""A case without a fault. The diagnosis should find no cause."""

import random

from rig.faults.fault import ServerFault
from rig.faults.traffic import PlannedTraffic


def no_incident(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Continue the usual traffic."""
    return ServerFault(cause="no_incident", metric="ttft", usual=usual, during=usual)
