"""Detects clients that wait for each answer before they send their next request.

Such a client slows down with the server, so its recorded instants do not hold for a changed server.
A tenant's requests come from waiting clients if three things hold:

- Just after each arrival, nearly the same number of its requests is in flight. For independent
  users (Poisson arrivals), the variance of this number equals its mean; for waiting clients, it is
  near 0.
- The clients wait for the server for more than half of the time. Otherwise a changed latency moves
  the arrivals by little.
- The pause before a request does not shrink when the answer before it took longer. A schedule at
  fixed instants fails here.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from replay.arrivals import FloatArray, IntArray

LEAST_REQUESTS: Final = 50
"""With fewer, the variance is known to less than 20 %."""
MOST_DISPERSION: Final = 0.2
"""Variance over mean. Independent users have 1; of 1,000 Poisson samples of 50 requests, none is
below 0.25 at a mean of 2 or more (tests/replay/test_closed_loops.py)."""
LEAST_IN_FLIGHT: Final = 1.5
"""A mean below it is near 1 for any traffic at a low rate, with any variance."""
MOST_CORRELATION: Final = -0.5


@dataclass(frozen=True, slots=True)
class ClosedLoops:
    """The requests of waiting clients, each with the one whose answer its client waited for."""

    after: IntArray
    """(n,) −1 for none."""
    think_s: FloatArray
    """(n,) seconds from that answer's end to the request."""
    tenants: tuple[int, ...]


def closed_loops(received_s: FloatArray, ended_s: FloatArray, tenant: IntArray) -> ClosedLoops:
    """Detect waiting clients, tenant by tenant.

    Args:
        received_s: (n,) ascending.
        ended_s: (n,) when each answer ended.
        tenant: (n,) whose request each is.
    """
    after = np.full(len(received_s), -1, dtype=np.int64)
    think_s = np.zeros(len(received_s))
    found = []
    for each in np.unique(tenant).tolist():
        rows = np.flatnonzero(tenant == each)
        before, pause_s = _chained(received_s[rows], ended_s[rows])
        if _waits(received_s[rows], ended_s[rows], before, pause_s):
            linked = before >= 0
            after[rows[linked]] = rows[before[linked]]
            think_s[rows[linked]] = pause_s[linked]
            found.append(int(each))
    return ClosedLoops(after, think_s, tuple(found))


def _chained(received_s: FloatArray, ended_s: FloatArray) -> tuple[IntArray, FloatArray]:
    """Link each request to the latest ended one that no other request is linked to."""
    before = np.full(len(received_s), -1, dtype=np.int64)
    pause_s = np.full(len(received_s), np.nan)
    by_end = np.argsort(ended_s, kind="stable")
    free: list[int] = []
    place = 0
    for row, at_s in enumerate(received_s.tolist()):
        while place < len(by_end) and ended_s[by_end[place]] <= at_s:
            free.append(int(by_end[place]))
            place += 1
        if free:
            before[row] = free.pop()
            pause_s[row] = at_s - ended_s[before[row]]
    return before, pause_s


def _waits(
    received_s: FloatArray, ended_s: FloatArray, before: IntArray, pause_s: FloatArray
) -> bool:
    known = before >= 0
    if known.sum() < LEAST_REQUESTS:
        return False
    begun = np.arange(1, len(received_s) + 1)
    ended = np.searchsorted(np.sort(ended_s), received_s, side="right")
    in_flight = (begun - ended)[known]
    latency_s = (ended_s - received_s)[before[known]]
    pauses_s = pause_s[known]
    return bool(
        in_flight.mean() >= LEAST_IN_FLIGHT
        and in_flight.var() <= MOST_DISPERSION * in_flight.mean()
        and np.median(pauses_s) <= np.median(latency_s)
        and _correlation(pauses_s, latency_s) >= MOST_CORRELATION
    )


def _correlation(one: FloatArray, other: FloatArray) -> float:
    if not one.std() or not other.std():
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])
