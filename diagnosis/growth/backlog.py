"""Since when a queue has been building: what is to blame for a wait came before it.

Pure. Who waits a minute stands behind what came in the minutes before, and how the traffic was at
the instant of its own arrival says nothing of that. While somebody waits without a pause, it is
the same backlog (in queueing theory, a busy period).
"""

import numpy as np

from diagnosis.inputs.requests import BoolArray, FloatArray


def backlogged(hot: BoolArray, begun: FloatArray, ended: FloatArray) -> BoolArray:
    """The hot blocks, and those before each since its backlog began.

    Args:
        hot: (blocks,) where the slow requests came.
        begun: (n,) when others began to wait, in blocks since the first.
        ended: (n,) and when they no longer did.
    """
    if not begun.size:
        return hot
    order = np.argsort(begun, kind="stable")
    begun, ended = begun[order], np.maximum.accumulate(ended[order])
    # A backlog begins with whoever came when nobody waited any more.
    first = np.concatenate([[True], begun[1:] > ended[:-1]])
    since = begun[first][np.cumsum(first) - 1]
    found = hot.copy()
    for block in np.flatnonzero(hot):
        there = np.flatnonzero((begun < block + 1) & (ended >= block))
        if there.size:
            found[max(int(since[there[0]]), 0) : block] = True
    return found
