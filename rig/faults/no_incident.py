"""The case without a fault: the same traffic continues, and no cause should be found."""

import random

from rig.faults.fault import Fault
from rig.faults.traffic import Traffic


def no_incident(draw: random.Random, severity: float, usual: Traffic) -> Fault:
    """Continue the usual traffic, and inject no fault."""
    return Fault(cause="no_incident", metric="ttft", usual=usual, during=usual)
