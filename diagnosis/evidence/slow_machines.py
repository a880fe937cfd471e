"""The machine's slowdown: what a slower GPU or CPU does to every part of a step.

Pure. The detectors of the single causes use clocks, GPU activity and foreign processes to
distinguish them.
"""

from collections.abc import Callable, Mapping
from math import log

import numpy as np

from diagnosis.evidence import drivers
from diagnosis.evidence.stalls import steadiness, surplus_ratio
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import Case
from diagnosis.inputs.requests import FloatArray

_SLOWER = 1.08
"""Slowdown that two ordinary hours may differ by."""
_MOST_REPLICAS = 16
"""Number of replicas that are examined separately."""
_STEADY = 0.5
"""Minimum ratio of the median second's surplus to the mean's, for a slowdown instead of a stall."""


def slowdown_of(case: Case) -> float | None:
    """Return how many times slower the machine is; None if it is not, or if this is unknown."""
    pace = case.machine_slowdown
    if pace is not None and pace > _SLOWER:
        return pace
    if steady_surplus(case):
        surplus = surplus_ratio(case)
        return 1.0 + surplus if surplus is not None and surplus > _SLOWER - 1.0 else None
    return None


def steady_surplus(case: Case) -> bool:
    """Return whether steps take longer than their work explains nearly all the time.

    A step model that has not yet adapted to a slower machine reports the slowdown as stalls.
    """
    steady = steadiness(case)
    return steady is not None and steady > _STEADY


def slow_replicas_showing(case: Case, shows: Callable[[Case], bool]) -> dict[str, float]:
    """Return the slow replicas that show a cause's evidence, with their slowdown.

    Replicas are examined one by one: two machines may be slow for different reasons, and the median
    request of a slow and a quick machine describes neither.
    """
    alone = len(case.slow_replicas) <= 1
    found = {}
    for each in case.slow_replicas[:_MOST_REPLICAS]:
        there = case if alone else case.at(each)
        times = slowdown_of(there) if shows(there) else None
        if times is not None:
            found[each] = times
    return found


def weights_of_slow_replicas(
    case: Case, times: Mapping[str, float]
) -> dict[str, float | FloatArray]:
    """Return the weights of these slowdowns, for the requests that each replica served."""
    if len(case.slow_replicas) <= 1:
        return weights_of_slowdown(case, *times.values())
    found: dict[str, float | FloatArray] = {}
    for replica, slower in times.items():
        there = case.slow.label("replica").is_value(replica)
        for term, weight in weights_of_slowdown(case.at(replica), slower).items():
            found[term] = found.get(term, 0.0) + np.asarray(weight * there, dtype=np.float64)
    return found


def weights_of_slowdown(case: Case, times: float) -> dict[str, float | FloatArray]:
    """Return the weights of a machine that is this many times slower."""
    beyond = 1.0 - 1.0 / times
    weights = wait_weights(case, drivers.PACE)
    weights |= {"prefill_own": 1.0, "decode_own": 1.0 - drivers.drafts_share(case)}
    # A slower batch is also fuller. Its growth beyond the traffic's growth belongs to the slowdown.
    load = max(case.demand.log_slow_replicas, 0.0)
    fuller = log(times) / (log(times) + load) if load > 0 else 1.0
    for term in ("prefill_others_decode", "decode_others_decode"):
        weights[term] = max(beyond, fuller) * (1.0 - drivers.drafts_share(case))
    for term in ("prefill_others_prefill", "decode_others_prefill"):
        weights[term] = max(beyond, float(np.max(weights.get(term, 0.0))))
    if steady_surplus(case):
        weights |= {"prefill_stall": 1.0, "decode_stall": 1.0}
    return weights
