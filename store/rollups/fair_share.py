"""Divide a limited number of places fairly between owners of candidates for a place. Pure.

For example, the candidates are label values, their owners are tenants, and a place is the right to
be stored by name.

The places are given in rounds. In each round, every owner receives one place, for the best of its
candidates that have no place yet. So an owner with many candidates cannot take the places of
others.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telemetry.sketches import IntArray


def fair_share(owners: IntArray, ranks: Sequence[NDArray[Any]], places: int) -> IntArray:
    """Return the candidates that receive a place, in the order in which they receive it.

    Args:
        owners: (candidates,) each candidate's owner.
        ranks: arrays (candidates,) of sort keys, the most important array first. The candidate with
            the smallest key is the best.

    Returns: the indices of the candidates.
    """
    keys = tuple(reversed(ranks))  # lexsort's last key is the most important
    order = np.lexsort((*keys, owners))
    first = np.flatnonzero(np.diff(owners[order], prepend=-1))
    before = np.repeat(first, np.diff(np.append(first, order.size)))
    rounds = np.empty(order.size, np.int64)
    rounds[order] = np.arange(order.size) - before
    return np.lexsort((*keys, rounds))[:places]
