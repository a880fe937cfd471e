"""Divide a limited number of places fairly between owners of candidates. Pure.

Places are assigned in rounds. In each round, every owner receives one place, for the best of its
candidates that have no place yet.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telemetry.sketches import IntArray


def fair_share(owners: IntArray, ranks: Sequence[NDArray[Any]], places: int) -> IntArray:
    """The indices of the candidates that receive a place, in the order in which they receive it.

    Args:
        owners: each candidate's owner: (candidates,).
        ranks: sort keys, the most important first: (candidates,). The smallest key is the best.
    """
    keys = tuple(reversed(ranks))  # lexsort's last key is the most important
    order = np.lexsort((*keys, owners))
    first = np.flatnonzero(np.diff(owners[order], prepend=-1))
    before = np.repeat(first, np.diff(np.append(first, order.size)))
    rounds = np.empty(order.size, np.int64)
    rounds[order] = np.arange(order.size) - before
    return np.lexsort((*keys, rounds))[:places]
