"""Map cells to replicas and hours. Pure. A cell is the sum of the requests with the same labels in
one hour (`telemetry.billing_data.BillingCells`)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from telemetry.billing_data import BillingCells, BoolArray
from telemetry.counter_series import FloatArray, IntArray

Key = tuple[str | None, int]
"""Replica, and start of the hour in unix seconds."""


class ReplicaHours(NamedTuple):
    """The replica and hour of each cell. Cell i has the replica and hour `keys[which[i]]`."""

    keys: Sequence[Key]
    which: IntArray

    def sum(self, values: FloatArray | IntArray | BoolArray) -> FloatArray:
        """Sum the cells' values for each replica and hour: (keys,)."""
        return np.bincount(self.which, values, len(self.keys)).astype(float)


def replica_hours(cells: BillingCells) -> ReplicaHours:
    """The replica and hour of each cell."""
    place = list(cells.by).index("replica")
    numbers: dict[str | None, int] = {}
    of_labels = [numbers.setdefault(labels[place], len(numbers)) for labels in cells.labels]
    replica = np.array(of_labels, np.int64)[cells.group]
    hours, hour = np.unique(cells.hour_unix_s, return_inverse=True)
    found, which = np.unique(replica * hours.size + hour, return_inverse=True)
    names = list(numbers)
    keys = [(names[each // hours.size], int(hours[each % hours.size])) for each in found.tolist()]
    return ReplicaHours(keys, which)
