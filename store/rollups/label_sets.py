"""For each grouping (`GROUPINGS`), assign requests to a limited number of label sets.

Beyond the limit, some values become `_other`. In a grouping with a label of `NAMED`, such as the
tenant, only the model is replaced. So all requests of a tenant that is stored by name keep this
name. In the grouping with every label, the labels of `_FOLDS` become `_other`. Label sets are
divided fairly between tenants (`fair_share.py`).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa

from store.rollups.coded_labels import CodedLabels, LabelSet, distinct_rows
from store.rollups.fair_share import fair_share
from store.rollups.names import (
    ALIVE_S,
    EXPORTED_TENANT,
    EXPORTED_TENANTS,
    LIMITS,
    OWNED,
    LabelValues,
)
from store.rollups.tables import GROUPINGS, LABELS, NAMED
from telemetry.labels import OTHER
from telemetry.sketches import IntArray

SETS: Final = 1_000
"""Maximum number of label sets in the grouping with all labels. The limit applies to each step of
`_FOLDS` separately."""
MODELS_EACH: Final = 4
"""For each value that is stored by name, the maximum number of models with which it is stored. It
applies to groupings with one label of `NAMED`."""
_FOLDS: Final[tuple[frozenset[str], ...]] = (
    frozenset({"replica"}),
    frozenset({"replica", "region", "lora", "route"}),
    frozenset(NAMED),
)
"""For each step, the labels to replace by `_other`. No further step is made when a label set is
within the limit."""
_REFRESH_S: Final = 3_600
_TENANT: Final = LABELS.index("tenant")
_MODEL: Final = LABELS.index("model")


def number_of(labels: LabelSet) -> int:
    """The number of a label set. It is a hash of the label set, so it is equal in all shards."""
    digest = blake2b(json.dumps(labels).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


@dataclass(slots=True)
class KnownLabelSet:
    """The start of the newest bucket with a label set, and the first grouping that contains it."""

    newest_unix_s: int
    grouping: int


def no_names() -> dict[str, LabelValues]:
    """Empty `LabelValues` for each label with a limit, and for `EXPORTED_TENANT`."""
    names = {label: LabelValues(limit, label in OWNED) for label, limit in LIMITS.items()}
    return {**names, EXPORTED_TENANT: LabelValues(EXPORTED_TENANTS)}


@dataclass(slots=True)
class LabelSets:
    """The label sets of the last day, and the values of each label that are stored by name."""

    known: dict[LabelSet, KnownLabelSet] = field(default_factory=dict)
    names: dict[str, LabelValues] = field(default_factory=no_names)
    changed: set[LabelSet] = field(default_factory=set)
    sets: int = SETS

    def assign(self, table: pa.Table, from_unix_s: int) -> list[tuple[list[LabelSet], IntArray]]:
        """Assign a label set to each request of a bucket.

        Returns: for each grouping, the label sets, and the index of each request's label set:
        (requests,).
        """
        coded = CodedLabels.of(table)
        self._replace_unnamed(coded, from_unix_s)
        alive: list[list[LabelSet]] = [[] for _ in GROUPINGS]
        for labels, each in self.known.items():
            if each.newest_unix_s >= from_unix_s - ALIVE_S:
                alive[each.grouping].append(labels)
        rows, place, numbers = coded.distinct()
        groupings = []
        for grouping, names in enumerate(GROUPINGS):
            mine = rows.copy()
            if grouping == 0:
                mine = self._folded(coded, mine, numbers, alive[0])
            else:
                mine[:, [label not in names for label in LABELS]] = 0
            if grouping > 1:
                self._limit_models(coded, mine, numbers, alive[grouping], names[-1])
            found, which = distinct_rows(mine)
            sets = coded.label_sets(found)
            for labels in sets:
                self._see(labels, grouping, from_unix_s)
            groupings.append((sets, which[place]))
        return groupings

    def _replace_unnamed(self, coded: CodedLabels, from_unix_s: int) -> None:
        self.names[EXPORTED_TENANT].assign(coded.occurrences("tenant"), from_unix_s)
        # Process tenants first, because they own adapters and routes.
        for label in sorted(LIMITS, key=OWNED.__contains__):
            named = self.names[label].assign(coded.occurrences(label), from_unix_s)
            coded.keep_only(label, named)

    def _folded(
        self, coded: CodedLabels, rows: IntArray, numbers: IntArray, alive: list[LabelSet]
    ) -> IntArray:
        """Replace labels of `_FOLDS` by `_other` beyond the limit. `rows` are codes: (sets,
        labels). `numbers` are the numbers of requests of the label sets: (sets,)."""
        for level, fold in enumerate(_FOLDS):
            lasting = coded.rows([each for each in alive if _folds(each) == level])
            competes = _levels(coded, rows) == level
            both = np.concatenate([rows[competes], lasting])
            found, which = distinct_rows(both)
            if len(found) <= self.sets:
                continue
            requests = np.bincount(which[: -len(lasting) or None], numbers[competes], len(found))
            new = np.ones(len(found), bool)
            new[which[competes.sum() :]] = False
            placed = np.zeros(len(found), bool)
            placed[fair_share(found[:, _TENANT], (new, -requests), self.sets)] = True
            without = np.flatnonzero(competes)[~placed[which[: competes.sum()]]]
            for label in fold:
                rows[without, LABELS.index(label)] = coded.code(label, OTHER)
        return rows

    def _limit_models(
        self,
        coded: CodedLabels,
        rows: IntArray,
        numbers: IntArray,
        alive: list[LabelSet],
        label: str,
    ) -> None:
        """Replace models by `_other` if there are too many pairs with a value of the label. Changes
        `rows`."""
        columns = [LABELS.index(label), _MODEL]
        limit = MODELS_EACH * self.names[label].limit
        if len(distinct_rows(rows[:, columns])[0]) + len(alive) <= limit:
            return
        lasting = coded.rows(alive)[:, columns]
        found, which = distinct_rows(np.concatenate([rows[:, columns], lasting]))
        if len(found) <= limit:
            return
        requests = np.bincount(which[: len(rows)], numbers, len(found))
        new = np.ones(len(found), bool)
        new[which[len(rows) :]] = False
        placed = np.zeros(len(found), bool)
        placed[fair_share(found[:, 0], (new, -requests), limit)] = True
        rows[~placed[which[: len(rows)]], _MODEL] = coded.code("model", OTHER)

    def stored(self) -> None:
        """Mark the changes as stored."""
        self.changed.clear()
        for each in self.names.values():
            each.changed.clear()

    def _see(self, labels: LabelSet, grouping: int, from_unix_s: int) -> None:
        before = self.known.get(labels)
        if before is None:
            self.known[labels] = KnownLabelSet(from_unix_s, grouping)
            self.changed.add(labels)
        # The time need not be exact, so it is not updated for each bucket.
        elif from_unix_s - before.newest_unix_s >= _REFRESH_S or grouping < before.grouping:
            before.newest_unix_s = max(before.newest_unix_s, from_unix_s)
            before.grouping = min(before.grouping, grouping)
            self.changed.add(labels)


def grouped(sets: Iterable[LabelSet], grouping: int) -> list[LabelSet]:
    """Label sets in which all labels outside a grouping are None."""
    kept = [name in GROUPINGS[grouping] for name in LABELS]
    return [
        tuple(v if keep else None for keep, v in zip(kept, labels, strict=True)) for labels in sets
    ]


def _folds(labels: LabelSet) -> int:
    other = {name for name, value in zip(LABELS, labels, strict=True) if value == OTHER}
    return sum(fold <= other for fold in _FOLDS)


def _levels(coded: CodedLabels, rows: IntArray) -> IntArray:
    other = [coded.code(label, OTHER) for label in LABELS]
    is_other = rows == np.array(other)
    folds = [is_other[:, [LABELS.index(label) for label in fold]].all(axis=1) for fold in _FOLDS]
    levels: IntArray = np.sum(folds, axis=0, dtype=np.int64)
    return levels
