"""Extend the period of the slow requests back to the time at which their queue began to grow.

Pure. A request that is queued for a minute was delayed by requests that arrived before it. So the
traffic at the time of its arrival does not explain its delay. A backlog lasts until no request is
queued (in queueing theory: a busy period).
"""

import numpy as np

from diagnosis.inputs.requests import BoolArray, FloatArray


def backlogged(hot: BoolArray, begun: FloatArray, ended: FloatArray) -> BoolArray:
    """Return which blocks of time have slow requests, or a backlog that delays slow requests:
    (blocks,).

    Args:
        hot: (blocks,) whether each block contains slow requests.
        begun: (n,) when each request began to wait, in blocks since the start of the first block.
        ended: (n,) when each request stopped waiting, in the unit of `begun`.
    """
    if not begun.size:
        return hot
    order = np.argsort(begun, kind="stable")
    begun, ended = begun[order], np.maximum.accumulate(ended[order])
    first = np.concatenate([[True], begun[1:] > ended[:-1]])
    since = begun[first][np.cumsum(first) - 1]
    found = hot.copy()
    for block in np.flatnonzero(hot):
        there = np.flatnonzero((begun < block + 1) & (ended >= block))
        if there.size:
            found[max(int(since[there[0]]), 0) : block] = True
    return found
