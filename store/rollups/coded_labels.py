"""Represent the labels of many requests as small integers (codes). Code 0 is None."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from store.rollups.names import OWNED, Occurrence
from store.rollups.tables import LABELS
from telemetry.labels import OTHER
from telemetry.sketches import IntArray

LabelSet = tuple[str | None, ...]
"""A label set: one value for each label in LABELS."""


@dataclass(slots=True)
class CodedLabels:
    """The labels of requests, in the order of LABELS.

    Attributes:
        values: for each label, a mapping from each value to its code.
        columns: for each label, the codes of the requests: (requests,).
    """

    values: list[dict[str | None, int]]
    columns: list[IntArray]

    @classmethod
    def of(cls, table: pa.Table) -> "CodedLabels":
        """Read the labels of a table of requests."""
        values, columns = [], []
        for label in LABELS:
            column = table[label].cast(pa.string()).combine_chunks().dictionary_encode()
            found = [None, *column.dictionary.to_pylist()]
            values.append({value: code for code, value in enumerate(found)})
            columns.append(column.indices.fill_null(-1).to_numpy().astype(np.int64) + 1)
        return cls(values, columns)

    def code(self, label: str, value: str | None) -> int:
        """The code of a value. A new value gets a new code."""
        codes = self.values[LABELS.index(label)]
        return codes.setdefault(value, len(codes))

    def occurrences(self, label: str) -> dict[str, Occurrence]:
        """Count the requests of each value of a label. For a label in `OWNED`, also find the tenant
        that sent the most requests of each value."""
        at = LABELS.index(label)
        number = len(self.values[at])
        requests = np.bincount(self.columns[at], minlength=number).tolist()
        owners = [""] * number
        if label in OWNED:
            tenants = list(self.values[LABELS.index("tenant")])
            pairs, counts = np.unique(
                self.columns[at] * len(tenants) + self.columns[LABELS.index("tenant")],
                return_counts=True,
            )
            for place in np.argsort(counts, kind="stable").tolist():  # the largest count comes last
                value, tenant = divmod(int(pairs[place]), len(tenants))
                owners[value] = tenants[tenant] or ""
        return {
            value: Occurrence(requests[code], owners[code])
            for value, code in self.values[at].items()
            if value is not None and requests[code]
        }

    def keep_only(self, label: str, kept: Collection[str]) -> None:
        """Replace all known values of a label, except those in `kept`, by `OTHER`."""
        at = LABELS.index(label)
        unnamed = [code for value, code in self.values[at].items() if value and value not in kept]
        if unnamed:
            other = self.code(label, OTHER)
            new = np.arange(len(self.values[at]))
            new[unnamed] = other
            self.columns[at] = new[self.columns[at]]

    def distinct(self) -> tuple[IntArray, IntArray, IntArray]:
        """The distinct label sets.

        Returns: three arrays.
        - the codes of each label set: (sets, labels)
        - the index of each request's label set: (requests,)
        - the number of requests of each label set: (sets,)
        """
        rows, place = distinct_rows(np.stack(self.columns, axis=1))
        return rows, place, np.bincount(place, minlength=len(rows))

    def rows(self, sets: Iterable[LabelSet]) -> IntArray:
        """The codes of label sets: (sets, labels). New values get new codes."""
        codes = [
            [known.setdefault(value, len(known)) for known, value in zip(self.values, each)]  # noqa: B905 -- equal lengths, in a hot loop
            for each in sets
        ]
        return np.array(codes, np.int64).reshape(-1, len(LABELS))

    def label_sets(self, rows: IntArray) -> list[LabelSet]:
        """The label sets for codes (sets, labels)."""
        values = [np.array(list(known), object) for known in self.values]
        columns = [each[rows[:, at]].tolist() for at, each in enumerate(values)]
        return list(zip(*columns, strict=True))


def distinct_rows(rows: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct rows of a matrix, and the index of each row among them."""
    key = np.zeros(len(rows), np.int64)
    for column in rows.T:
        key = key * (int(column.max(initial=0)) + 1) + column
        if int(key.max(initial=0)) >= 2**40:
            key = np.unique(key, return_inverse=True)[1]
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return rows[first], place
