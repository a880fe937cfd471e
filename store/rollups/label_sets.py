"""Assign requests to a limited number of label sets.

Clients can send any number of tenants and routes, so the numbers of values per label and of label
sets are limited. The most frequent values of a day take precedence. Any other value is stored as
`_other`, and requests with such a value are counted.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa

from store.rollups.tables import GROUPINGS, LABELS
from telemetry.sketches import IntArray

OTHER: Final = "_other"
VALUES: Final = 200
"""Maximum number of values per label. The exporter has the same limit."""
SETS: Final = 1_000
ALIVE_S: Final = 86_400
"""A value that did not occur during this time no longer counts towards the limit."""
_KEPT: Final = ("model", "outcome", "streamed")
"""The labels that keep their values if there are too many label sets. The values of all other
labels become `_other`.
"""
_REFRESH_S: Final = 3_600

LabelSet = tuple[str | None, ...]
"""One value for each label in LABELS."""


def number_of(labels: LabelSet) -> int:
    """Return a label set's number.

    It is the same in every database, so shards can be merged.
    """
    digest = blake2b(json.dumps(labels).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


@dataclass(slots=True)
class Assigned:
    """The label sets of a table of requests."""

    sets: list[LabelSet]
    place: IntArray
    """(requests,) index of each request's label set."""
    overflowed: int
    """Number of requests with a label value that is stored as `_other`."""


@dataclass(slots=True)
class LabelSets:
    """The known label sets, each with the start of the newest bucket that contains it."""

    newest_unix_s: dict[LabelSet, int] = field(default_factory=dict)
    changed: set[LabelSet] = field(default_factory=set)
    """The label sets that must be stored."""
    values: int = VALUES
    sets: int = SETS

    def assign(self, table: pa.Table, from_unix_s: int) -> Assigned:
        """Assign a label set to each request of a bucket.

        Args:
            table: requests with LABELS.
            from_unix_s: the bucket's start.
        """
        given, place = combinations(table)
        numbers = np.bincount(place, minlength=len(given)).tolist()
        alive = [each for each, at in self.newest_unix_s.items() if at >= from_unix_s - ALIVE_S]
        capped = self._cap_values(given, numbers, alive)
        capped = self._cap_sets(capped, numbers, set(alive))
        for labels in set(capped):
            self._see(labels, from_unix_s)
        sets = list(dict.fromkeys(capped))
        where = {labels: i for i, labels in enumerate(sets)}
        overflowed = sum(
            number for labels, number in zip(capped, numbers, strict=True) if OTHER in labels
        )
        places = np.array([where[labels] for labels in capped], np.int64)
        return Assigned(sets, places[place], overflowed)

    def _cap_values(
        self, given: list[LabelSet], numbers: list[int], alive: list[LabelSet]
    ) -> list[LabelSet]:
        rooms = []
        for i in range(len(LABELS)):
            frequency: Counter[str | None] = Counter()
            for labels, number in zip(given, numbers, strict=True):
                frequency[labels[i]] += number
            room = {each[i] for each in alive} | {None}
            free = self.values - len(room) + 1
            new = [value for value, _ in frequency.most_common() if value not in room]
            rooms.append(room.union(new[: max(0, free)]))
        return [
            tuple(
                value if value in room else OTHER for value, room in zip(labels, rooms, strict=True)
            )
            for labels in given
        ]

    def _cap_sets(
        self, given: list[LabelSet], numbers: list[int], alive: set[LabelSet]
    ) -> list[LabelSet]:
        frequency: Counter[LabelSet] = Counter()
        for labels, number in zip(given, numbers, strict=True):
            frequency[labels] += number
        new = [labels for labels, _ in frequency.most_common() if labels not in alive]
        without_room = set(new[max(0, self.sets - len(alive)) :])
        return [_folded(labels) if labels in without_room else labels for labels in given]

    def _see(self, labels: LabelSet, from_unix_s: int) -> None:
        before = self.newest_unix_s.get(labels)
        # Do not update the time every minute: an accuracy of a day is sufficient.
        if before is None or from_unix_s - before >= _REFRESH_S:
            self.newest_unix_s[labels] = from_unix_s
            self.changed.add(labels)


def combinations(table: pa.Table) -> tuple[list[LabelSet], IntArray]:
    """Return the distinct label sets, and the index of the label set of each request."""
    key = np.zeros(table.num_rows, np.int64)
    columns = []
    for label in LABELS:
        column = table[label].cast(pa.string()).combine_chunks().dictionary_encode()
        values = [None, *column.dictionary.to_pylist()]
        codes = column.indices.fill_null(-1).to_numpy() + 1
        columns.append((values, codes))
        key = key * len(values) + codes
        if key.size and int(key.max()) >= 2**40:  # prevents an overflow at the next label
            key = np.unique(key, return_inverse=True)[1]
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    given = zip(*([values[c] for c in codes[first]] for values, codes in columns), strict=True)
    return list(given), place


def grouped(sets: Iterable[LabelSet], grouping: int) -> list[LabelSet]:
    """Reduce label sets to the labels of a grouping. All other labels become None."""
    kept = GROUPINGS[grouping]
    return [
        tuple(v if name in kept else None for name, v in zip(LABELS, labels, strict=True))
        for labels in sets
    ]


def _folded(labels: LabelSet) -> LabelSet:
    return tuple(
        value if name in _KEPT else OTHER for name, value in zip(LABELS, labels, strict=True)
    )
