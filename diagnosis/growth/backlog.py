"""Extend the period of the slow requests back to the time at which their queue began to grow.

Pure. A request that waits for a minute waits behind earlier requests, so the traffic at its own
arrival does not explain its wait. A backlog lasts as long as at least one request waits (in
queueing theory: a busy period).
"""

import numpy as np

from diagnosis.inputs.requests import BoolArray, FloatArray


def backlogged(hot: BoolArray, begun: FloatArray, ended: FloatArray) -> BoolArray:
    """Mark the blocks with slow requests, and the earlier blocks in which the backlog that delayed
    these requests grew: (blocks,).

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
