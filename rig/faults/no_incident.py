"""The case without a fault, in which no cause should be found."""

import random

from rig.faults.fault import ServerFault
from rig.faults.traffic import PlannedTraffic


def no_incident(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Continue the usual traffic."""
    return ServerFault(cause="no_incident", metric="ttft", usual=usual, during=usual)
