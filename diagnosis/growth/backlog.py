"""Extend the period of the slow requests back to the time when their queue began to build.

Pure. A request that waits for a minute waits behind requests of the minutes before, so the traffic
at its own arrival does not explain its wait. A backlog lasts as long as at least one request is
waiting (in queueing theory: a busy period).
"""

import numpy as np

from diagnosis.inputs.requests import BoolArray, FloatArray


def backlogged(hot: BoolArray, begun: FloatArray, ended: FloatArray) -> BoolArray:
    """Return the hot blocks, and the blocks before them in which their backlog built up.

    Args:
        hot: (blocks,) blocks with slow requests.
        begun: (n,) when each request began to wait, in blocks since the first block.
        ended: (n,) when each request stopped waiting, in the same unit.
    """
    if not begun.size:
        return hot
    order = np.argsort(begun, kind="stable")
    begun, ended = begun[order], np.maximum.accumulate(ended[order])
    # A backlog begins with a request that arrives while no other request waits.
    first = np.concatenate([[True], begun[1:] > ended[:-1]])
    since = begun[first][np.cumsum(first) - 1]
    found = hot.copy()
    for block in np.flatnonzero(hot):
        there = np.flatnonzero((begun < block + 1) & (ended >= block))
        if there.size:
            found[max(int(since[there[0]]), 0) : block] = True
    return found
