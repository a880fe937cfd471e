"""Detect waiting clients: clients that send the next request only after the previous response.

If the server becomes slower, waiting clients send fewer requests per second. A replay of a changed
server must therefore not use their recorded arrival times. The clients of a tenant are treated as
waiting clients if four conditions hold:

- After each arrival, nearly the same number of the tenant's requests is in flight. If requests
  arrive independently of each other (Poisson arrivals), the variance of this number equals its
  mean. For waiting clients, the variance is near 0.
- The median pause of the clients is not longer than the median latency of their requests.
- The pause between a response and the next request is not shorter after a longer response. A client
  that sends requests at fixed times fails this condition: the longer the response takes, the less
  time remains until the next fixed time.
- The times between arrivals vary. A load generator with a constant rate fails this condition, even
  if many of its requests are in flight.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from replay.arrivals import FloatArray, IntArray

MIN_REQUESTS: Final = 50
"""Minimum number of requests of a tenant. With fewer requests, the standard error of the measured
variance exceeds 20 %."""
MAX_DISPERSION: Final = 0.2
"""Maximum ratio of variance to mean of the number of requests in flight. For independent users, the
expected ratio is 1. A test simulates the requests of independent users 1,000 times. Among the
results with a mean of 2 or more, the lowest ratio was 0.25 (tests/replay/test_closed_loops.py)."""
MIN_IN_FLIGHT: Final = 1.5
"""Minimum mean number of requests in flight. At low request rates, the ratio of variance to mean is
near 1 for waiting clients and for independent clients. So they cannot be distinguished."""
MAX_CORRELATION: Final = -0.5
MIN_VARIATION: Final = 0.2
"""Minimum ratio of standard deviation to mean of the times between arrivals. At a constant rate,
the ratio is 0. If two or more clients wait for responses of different lengths, it is near 1."""


@dataclass(frozen=True, slots=True)
class ClosedLoops:
    """Links each request of a waiting client to the previous request of this client."""

    after: IntArray
    think_s: FloatArray
    tenants: tuple[int, ...]


def closed_loops(received_s: FloatArray, ended_s: FloatArray, tenant: IntArray) -> ClosedLoops:
    """Detect waiting clients, for each tenant separately."""
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
    """Link each request to an earlier request. The earlier request ended before the later request
    was received, and only one request is linked to each earlier request. If several requests meet
    these conditions, the request that ended last is chosen.

    Return the index of the linked request (−1 if there is none) and the pause in seconds, both
    (n,).
    """
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
    if known.sum() < MIN_REQUESTS:
        return False
    begun = np.arange(1, len(received_s) + 1)
    ended = np.searchsorted(np.sort(ended_s), received_s, side="right")
    in_flight = (begun - ended)[known]
    latency_s = (ended_s - received_s)[before[known]]
    pauses_s = pause_s[known]
    apart_s = np.diff(received_s)
    return bool(
        in_flight.mean() >= MIN_IN_FLIGHT
        and in_flight.var() <= MAX_DISPERSION * in_flight.mean()
        and apart_s.std() >= MIN_VARIATION * apart_s.mean()
        and np.median(pauses_s) <= np.median(latency_s)
        and _correlation(pauses_s, latency_s) >= MAX_CORRELATION
    )


def _correlation(one: FloatArray, other: FloatArray) -> float:
    if not one.std() or not other.std():
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])
