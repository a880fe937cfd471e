"""Divide a limited number of places fairly between owners.

Pure. The places are given in rounds: in each round, every owner receives a place for its next best
candidate. So an owner with many candidates cannot take the places of another owner.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telemetry.sketches import IntArray


def fair_share(owners: IntArray, ranks: Sequence[NDArray[Any]], places: int) -> IntArray:
    """Return the candidates that receive a place, in the order in which the places are given.

    Args:
        owners: (candidates,) the number of each candidate's owner.
        ranks: arrays (candidates,) that order the candidates: by the first array, then by the
            second, and so on. The best candidate has the smallest value.
        places: the number of places.

    Returns: the indices of the candidates.
    """
    keys = tuple(reversed(ranks))  # lexsort sorts by its last key first
    order = np.lexsort((*keys, owners))
    first = np.flatnonzero(np.diff(owners[order], prepend=-1))
    before = np.repeat(first, np.diff(np.append(first, order.size)))
    rounds = np.empty(order.size, np.int64)
    rounds[order] = np.arange(order.size) - before
    return np.lexsort((*keys, rounds))[:places]
