"""Measure how much slower a machine became.

On a slower machine, every part of a step takes longer. Pure."""

from collections.abc import Callable, Mapping
from math import log

import numpy as np

from diagnosis.evidence import drivers
from diagnosis.evidence.stalls import steadiness, usual_surplus_ratio
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import NOISE
from diagnosis.inputs.requests import FloatArray

_MAX_SERVERS = 16
"""Maximum number of servers that are examined separately."""
_STEADY = 0.5
"""The surplus is the step time that the work does not explain. A machine counts as slower if the
ratio (median surplus / mean surplus) is at least this. In simulations, the median ratio is 0 with a
stall, and near 1 with a slowdown."""


def slowdown_of(case: DiagnosisCase) -> float | None:
    """Return the machine's slowdown factor.

    Return None if the machine is not slower, or if there is too little data.
    """
    pace = case.machine_slowdown
    if pace is not None and pace > 1.0 + NOISE:
        return pace
    return steady_slowdown(case)


def steady_slowdown(case: DiagnosisCase) -> float | None:
    """Return the factor by which steps take longer than their work explains, if this is so in
    nearly every second.

    Return None if there is no such factor. Stalls are excluded.
    """
    steady = steadiness(case)
    if steady is None or steady <= _STEADY:
        return None
    surplus = usual_surplus_ratio(case)
    return 1.0 + surplus if surplus > NOISE else None


def slow_servers_showing(
    case: DiagnosisCase, shows: Callable[[DiagnosisCase], bool]
) -> dict[str, float]:
    """Return the slowdown factors of the slow servers for which `shows` returns true."""
    alone = len(case.slow_servers) <= 1
    found = {}
    for each in case.slow_servers[:_MAX_SERVERS]:
        there = case if alone else case.at(each)
        times = slowdown_of(there) if shows(there) else None
        if times is not None:
            found[each] = times
    return found


def weights_of_slow_servers(
    case: DiagnosisCase, times: Mapping[str, float]
) -> dict[str, float | FloatArray]:
    """Return the share of each term that the slower servers explain. `times` contains the slowdown
    factors of these servers."""
    if len(case.slow_servers) <= 1:
        return weights_of_slowdown(case, *times.values())
    found: dict[str, float | FloatArray] = {}
    for server, slower in times.items():
        there = case.slow.server.is_value(server)
        for term, weight in weights_of_slowdown(case.at(server), slower).items():
            found[term] = found.get(term, 0.0) + np.asarray(weight * there, dtype=np.float64)
    return found


def weights_of_slowdown(case: DiagnosisCase, times: float) -> dict[str, float | FloatArray]:
    """Return the share of each term that a slower machine explains. `times` is its slowdown
    factor."""
    beyond = 1.0 - 1.0 / times
    weights = wait_weights(case, drivers.PACE)
    weights |= {"prefill_own": 1.0, "decode_own": 1.0 - drivers.drafts_share(case)}
    # A slower machine also has a fuller batch. Growth of the traffic explains a part of the batch's
    # growth. The slowdown explains the rest.
    load = max(case.demand.log_slow_servers, 0.0)
    fuller = log(times) / (log(times) + load) if load > 0 else 1.0
    for term in ("prefill_others_decode", "decode_others_decode"):
        weights[term] = max(beyond, fuller) * (1.0 - drivers.drafts_share(case))
    for term in ("prefill_others_prefill", "decode_others_prefill"):
        weights[term] = max(beyond, float(np.max(weights.get(term, 0.0))))
    if steady_slowdown(case) is not None:
        weights |= {"prefill_stall": 1.0, "decode_stall": 1.0}
    return weights
