"""The machine's pace: what a slower GPU or CPU does to every part of a step alike.

Pure. Which of the causes of a slow machine it is, its detectors tell from clocks, from the
pattern of its GPUs and from who else is at work.
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
"""Times the baseline's pace: what two quiet hours differ by."""
_MOST_REPLICAS = 16
"""Looked at one by one."""
_STEADY = 0.5
"""The median second's surplus over the mean's, for it to be no stall but the pace."""


def slowdown_of(case: Case) -> float | None:
    """How many times slower the machine is; None where it is not, or nobody can tell."""
    pace = case.machine_slowdown
    if pace is not None and pace > _SLOWER:
        return pace
    if steady_surplus(case):
        surplus = surplus_ratio(case)
        return 1.0 + surplus if surplus is not None and surplus > _SLOWER - 1.0 else None
    return None


def steady_surplus(case: Case) -> bool:
    """Whether steps take more than their work explains nearly all the time: a model of steps
    that has not yet learnt the new pace calls a slow machine a stall."""
    steady = steadiness(case)
    return steady is not None and steady > _STEADY


def slow_replicas_showing(case: Case, shows: Callable[[Case], bool]) -> dict[str, float]:
    """The replicas of slow requests that are slower and show what a cause would, with how many
    times slower each is: two machines may be slow for two reasons, and beside one that is quick
    the middle request tells of neither."""
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
    """The weights of machines so many times slower, for the requests that they served."""
    if len(case.slow_replicas) <= 1:
        return weights_of_slowdown(case, *times.values())
    found: dict[str, float | FloatArray] = {}
    for replica, slower in times.items():
        there = case.slow.label("replica").is_value(replica)
        for term, weight in weights_of_slowdown(case.at(replica), slower).items():
            found[term] = found.get(term, 0.0) + np.asarray(weight * there, dtype=np.float64)
    return found


def weights_of_slowdown(case: Case, times: float) -> dict[str, float | FloatArray]:
    """The weights of a machine so many times slower."""
    beyond = 1.0 - 1.0 / times
    weights = wait_weights(case, drivers.PACE)
    weights |= {"prefill_own": 1.0, "decode_own": 1.0 - drivers.drafts_share(case)}
    # A batch that is slower is also fuller: what it grew by, beyond the traffic's growth, is
    # the pace's too.
    load = max(case.demand.log_slow_replicas, 0.0)
    fuller = log(times) / (log(times) + load) if load > 0 else 1.0
    for term in ("prefill_others_decode", "decode_others_decode"):
        weights[term] = max(beyond, fuller) * (1.0 - drivers.drafts_share(case))
    for term in ("prefill_others_prefill", "decode_others_prefill"):
        weights[term] = max(beyond, float(np.max(weights.get(term, 0.0))))
    if steady_surplus(case):
        weights |= {"prefill_stall": 1.0, "decode_stall": 1.0}
    return weights
