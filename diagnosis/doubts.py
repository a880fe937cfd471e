"""What the data says against itself.

Pure. Little's law: the requests waiting, in the mean, are the rate at which they come times the
time they wait. The engines tell the one, the requests' rows the others; where they part, rows
are missing or clocks are wrong, and no explanation from them is to be trusted.

Source: Little, A Proof for the Queuing Formula L = λW, Operations Research 9 (3), 1961.
"""

from typing import Final

import numpy as np

from diagnosis.question import Span
from diagnosis.requests import BoolArray, Requests
from diagnosis.servers import Samples

OFF: Final = 0.20
"""Of the larger one, how far the two may be apart."""
WAITING: Final = 1.0
"""Requests waiting in the mean: of fewer, a sample each second says too little."""


def doubts(requests: Requests, engines: Samples, window: Span) -> list[str]:
    """Sentences, one for each replica whose queue does not add up."""
    found = []
    waited_s = np.nan_to_num(requests.number("queue_s")) + np.nan_to_num(
        requests.number("handoff_s")
    )
    inside = (engines.at_unix_ns >= window.from_unix_ns) & (engines.at_unix_ns < window.to_unix_ns)
    replica = requests.label("replica")
    for name in replica.values:
        told = _waiting(engines, inside, name)
        counted = float(waited_s[replica.is_value(name)].sum()) / window.seconds
        if told is None or max(told, counted) < WAITING:
            continue
        if abs(told - counted) > OFF * max(told, counted):
            found.append(
                f"{name} says that {told:.1f} requests waited in the mean, its requests add up to"
                f" {counted:.1f}: some are missing, still running, or a clock is off."
            )
    return found


def _waiting(engines: Samples, inside: BoolArray, replica: str) -> float | None:
    """Requests waiting at a replica, in the mean of time, over all its engines."""
    if replica not in engines.replica.values:
        return None
    rows = inside & (engines.replica.codes == engines.replica.values.index(replica))
    values, series = engines.number("waiting")[rows], engines.series[rows]
    means = [
        float(np.mean(values[(series == each) & np.isfinite(values)]))
        for each in np.unique(series[np.isfinite(values)])
    ]
    return sum(means) if means else None
