"""Check whether the data contradicts Little's law. Pure.

By this law, the mean number of waiting requests is the arrival rate times the mean waiting time.
Engines report the number, and rows report the waiting times. If they contradict each other, rows
are missing or a clock is wrong. An explanation of such data is not reliable.

Source: Little, A Proof for the Queuing Formula L = λW, Operations Research 9 (3), 1961.
"""

from typing import Final, NamedTuple

import numpy as np

from diagnosis.inputs.requests import BoolArray, FloatArray, Requests
from diagnosis.inputs.servers import Samples
from diagnosis.question import Span

OFF: Final = 0.20
"""Allowed difference between the reported and the computed number of waiting requests, as a share
of the larger number."""
ERRORS: Final = 4.0
"""Additional allowed difference, in standard errors of the samples' mean."""
WAITING: Final = 1.0
"""Minimum mean number of waiting requests. With fewer waiting requests, one sample per second is
too coarse."""


def contradictions(requests: Requests, engines: Samples, window: Span) -> list[str]:
    """Return one sentence for each replica whose samples contradict its requests.

    Args:
        requests: the requests of the window, and earlier requests that may still have waited in the
            window.
    """
    found = []
    waited_s = _waited_within_s(requests, window)
    inside = (engines.at_unix_ns >= window.from_unix_ns) & (engines.at_unix_ns < window.to_unix_ns)
    replica = requests.label("replica")
    for name in replica.values:
        sampled = _waiting(engines, inside, name)
        counted = float(waited_s[replica.is_value(name)].sum()) / window.seconds
        if sampled is None or max(sampled.mean, counted) < WAITING:
            continue
        if abs(sampled.mean - counted) > OFF * max(sampled.mean, counted) + ERRORS * sampled.error:
            found.append(
                f"{name} reports {sampled.mean:.1f} waiting requests on average, but the requests'"
                f" waiting times give {counted:.1f}: requests are missing or still running, or a"
                " clock is wrong."
            )
    return found


def _waited_within_s(requests: Requests, window: Span) -> FloatArray:
    """Return the seconds that each request waited within the window: (n,)."""
    received_s = (requests.received_unix_ns - window.from_unix_ns) / 1e9
    handoff_s = np.nan_to_num(requests.number("handoff_s"))
    begun_s = received_s + np.nan_to_num(requests.number("frontend_s")) - handoff_s
    ended_s = begun_s + handoff_s + np.nan_to_num(requests.number("queue_s"))
    within: FloatArray = np.clip(ended_s, 0.0, window.seconds) - np.clip(
        begun_s, 0.0, window.seconds
    )
    return within


class _WaitingMean(NamedTuple):
    mean: float
    error: float


def _waiting(engines: Samples, inside: BoolArray, replica: str) -> _WaitingMean | None:
    """Return the mean number of waiting requests of a replica, and its standard error."""
    if replica not in engines.replica.values:
        return None
    rows = inside & (engines.replica.codes == engines.replica.values.index(replica))
    values, series = engines.number("waiting")[rows], engines.series[rows]
    known = np.isfinite(values)
    of_each = [values[known & (series == each)] for each in np.unique(series[known])]
    if not of_each:
        return None
    return _WaitingMean(
        sum(float(each.mean()) for each in of_each),
        float(np.sqrt(sum(each.var() / each.size for each in of_each))),
    )
