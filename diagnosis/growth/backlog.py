"""Extend the time of the slow requests back to when the queue that they waited in began to build.

Pure. A request that waits for a minute stands behind the requests of the minutes before. The
traffic at its own arrival does not explain that wait. As long as at least one request is waiting,
it is the same backlog (a busy period in queueing theory).
"""

import numpy as np

from diagnosis.inputs.requests import BoolArray, FloatArray


def backlogged(hot: BoolArray, begun: FloatArray, ended: FloatArray) -> BoolArray:
    """Return the hot blocks, and the blocks before each since its backlog began.

    Args:
        hot: (blocks,) blocks with slow requests.
        begun: (n,) when each request began to wait, in blocks since the first.
        ended: (n,) when each stopped waiting.
    """
    if not begun.size:
        return hot
    order = np.argsort(begun, kind="stable")
    begun, ended = begun[order], np.maximum.accumulate(ended[order])
    # A backlog begins with a request that arrives when no other waits.
    first = np.concatenate([[True], begun[1:] > ended[:-1]])
    since = begun[first][np.cumsum(first) - 1]
    found = hot.copy()
    for block in np.flatnonzero(hot):
        there = np.flatnonzero((begun < block + 1) & (ended >= block))
        if there.size:
            found[max(int(since[there[0]]), 0) : block] = True
    return found
