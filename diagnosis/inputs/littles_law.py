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
    inside = (engines.at_unix_ns >= window.from_unix_ns) & (engines.at_unix_ns < window.to_unix_ns)
    replica = requests.label("replica")
    for name in replica.values:
        sampled = _waiting(engines, inside, name)
        if sampled is None:
            continue
        waited_s = _waited_within_s(requests.rows(replica.is_value(name)), sampled.time)
        counted = float(waited_s.sum()) / sampled.time.seconds
        if max(sampled.mean, counted) < WAITING:
            continue
        if abs(sampled.mean - counted) > OFF * max(sampled.mean, counted) + ERRORS * sampled.error:
            found.append(
                f"{name} reports {sampled.mean:.1f} waiting requests on average, but the requests'"
                f" waiting times give {counted:.1f}: requests are missing or still running, or a"
                " clock is wrong."
            )
    return found


def _waited_within_s(requests: Requests, time: Span) -> FloatArray:
    """Return the seconds that each request waited within a time range: (n,)."""
    received_s = (requests.received_unix_ns - time.from_unix_ns) / 1e9
    handoff_s = np.nan_to_num(requests.number("handoff_s"))
    begun_s = received_s + np.nan_to_num(requests.number("frontend_s")) - handoff_s
    ended_s = begun_s + handoff_s + np.nan_to_num(requests.number("queue_s"))
    within: FloatArray = np.clip(ended_s, 0.0, time.seconds) - np.clip(begun_s, 0.0, time.seconds)
    return within


class _WaitingMean(NamedTuple):
    mean: float
    error: float
    time: Span
    """The time from the replica's first sample to its last sample in the window."""


def _waiting(engines: Samples, inside: BoolArray, replica: str) -> _WaitingMean | None:
    """Return the mean number of waiting requests of a replica, and its standard error.

    Return None if the window has no two samples at different times. A replica's engines are
    separate series, and their means are added. A restart also begins a new series, so each series
    has the weight of the share of the time that it covers."""
    if replica not in engines.replica.values:
        return None
    rows = inside & (engines.replica.codes == engines.replica.values.index(replica))
    rows &= np.isfinite(engines.number("waiting"))
    at, values, series = (
        engines.at_unix_ns[rows],
        engines.number("waiting")[rows],
        engines.series[rows],
    )
    if not at.size or at.min() == at.max():
        return None
    mean = variance = 0.0
    for each in np.unique(series):
        mine = series == each
        share = float(np.ptp(at[mine]) / np.ptp(at))
        mean += share * float(values[mine].mean())
        variance += share**2 * float(values[mine].var()) / int(mine.sum())
    return _WaitingMean(mean, float(np.sqrt(variance)), Span(int(at.min()), int(at.max())))
