"""No fault at all: the same traffic goes on, and nothing should be found."""

import random

from rig.faults.fault import Fault
from rig.faults.traffic import Traffic


def no_incident(draw: random.Random, severity: float, usual: Traffic) -> Fault:
    """The traffic as it was, drawn anew."""
    return Fault(cause="no_incident", metric="ttft", usual=usual, under=usual)
