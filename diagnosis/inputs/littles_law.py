"""What the data says against itself.

Pure. Little's law: the requests waiting, in the mean, are the rate at which they come times the
time they wait. The engines tell the one, the requests' rows the others; where they part, rows
are missing or clocks are wrong, and no explanation from them is to be trusted.

Source: Little, A Proof for the Queuing Formula L = λW, Operations Research 9 (3), 1961.
"""

from typing import Final, NamedTuple

import numpy as np

from diagnosis.inputs.requests import BoolArray, FloatArray, Requests
from diagnosis.inputs.servers import Samples
from diagnosis.question import Span

OFF: Final = 0.20
"""Of the larger one, how far the two may be apart, beyond what samples miss between them."""
ERRORS: Final = 4.0
"""Standard errors of the samples' mean; neighbours are alike, so each is worth less than one."""
WAITING: Final = 1.0
"""Requests waiting in the mean: of fewer, a sample each second says too little."""


def contradictions(requests: Requests, engines: Samples, window: Span) -> list[str]:
    """Sentences, one for each replica whose queue does not add up.

    Args:
        requests: those of the window, and those before that may have waited into it.
        engines: their samples.
        window: what is held against each other.
    """
    found = []
    waited_s = _waited_within_s(requests, window)
    inside = (engines.at_unix_ns >= window.from_unix_ns) & (engines.at_unix_ns < window.to_unix_ns)
    replica = requests.label("replica")
    for name in replica.values:
        told = _waiting(engines, inside, name)
        counted = float(waited_s[replica.is_value(name)].sum()) / window.seconds
        if told is None or max(told.mean, counted) < WAITING:
            continue
        if abs(told.mean - counted) > OFF * max(told.mean, counted) + ERRORS * told.error:
            found.append(
                f"{name} says that {told.mean:.1f} requests waited in the mean, its requests add up"
                f" to {counted:.1f}: some are missing, still running, or a clock is off."
            )
    return found


def _waited_within_s(requests: Requests, window: Span) -> FloatArray:
    """(n,) how much of its wait lies in the window; what lies outside the samples don't tell."""
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
    """Requests waiting at a replica, in the mean of time, over all its engines."""
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
