"""Query rollups: counts, sums and quantiles of a window, by labels and over time.

For a minute without a rollup, its requests are read, so results are complete. Quantiles are within
1 % of a reported duration (telemetry/sketches.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Column, Engine, func, select

from store.access.restricted import access_of
from store.access.tables import visible_groupings
from store.connections import reading
from store.queries import Window, label_values, request_count, request_table
from store.rollups.buckets import (
    Quantiles,
    Ranks,
    Sketches,
    Sums,
    add_sums,
    end_to_end_sketches,
    end_to_end_sums,
    only_sketches,
    ranked,
    sketches_of,
    sums_of,
)
from store.rollups.label_sets import LabelSet, combinations, grouped, number_of
from store.rollups.marks import SECOND_NS, whole_from_unix_s
from store.rollups.plan import Plan, plan
from store.rollups.storage import known_label_sets, load_sketches, load_sums
from store.rollups.tables import GROUPINGS, HOUR_S, LABELS, MINUTE_S, ROLLUPS
from telemetry.requests import Source
from telemetry.sketches import IntArray

_MINUTE_NS = MINUTE_S * SECOND_NS
_ALL: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Steps:
    """Equal time steps: step i begins at `first_unix_s + i * width_s`."""

    first_unix_s: int
    width_s: int
    number: int


@dataclass(slots=True)
class Rollups:
    """A query whose results are computed by cell: a pair of a group and a step.

    Groups are numbered in the order of `groups`.
    """

    engine: Engine
    plan: Plan
    steps: Steps
    by: Sequence[str]
    equals: Mapping[str, str | None]
    unless: Mapping[str, str]
    groups: list[LabelSet] = field(default_factory=list)
    """The label values of each group. The list grows while results are read."""
    simulated: bool = False
    """Whether the results include simulated requests."""

    def again(self, by: Sequence[str]) -> "Rollups":
        """Return the same query with other labels to group by."""
        return Rollups(self.engine, self.plan, self.steps, tuple(by), self.equals, self.unless)

    def requests_gone_before_unix_ns(self) -> int:
        """Return the time before which requests were deleted and only rollups remain."""
        return (whole_from_unix_s(self.engine, MINUTE_S) or 0) * SECOND_NS

    def overflowed(self) -> int:
        """Return the number of requests with a label value that is stored as `_other`; 0 for a
        reader who may not see all requests."""
        return self._total(ROLLUPS.c.overflowed)

    def number(self) -> int:
        """Return the number of all visible requests in the window, ignoring `equals`."""
        access = access_of(self.engine)
        if access is not None and access.limits_rows:
            whole = Rollups(self.engine, self.plan, self.steps, (), {}, {})
            return int(whole.sums(()).requests.sum())
        waiting = (request_count(self.engine, _window(*each)) for each in self.plan.requests)
        return self._total(ROLLUPS.c.requests) + sum(waiting)

    def _total(self, column: "Column[int]") -> int:
        total = 0
        with reading(self.engine) as connection:
            for width_s, stretches in self._made():
                for start, end in stretches:
                    found: int | None = connection.scalar(
                        select(func.sum(column)).where(
                            ROLLUPS.c.grouping == len(GROUPINGS) - 1,
                            ROLLUPS.c.width_s == width_s,
                            ROLLUPS.c.from_unix_s >= start,
                            ROLLUPS.c.from_unix_s < end,
                        )
                    )
                    total += found or 0
        return total

    def sums(self, quantities: Sequence[str]) -> Sums:
        """Return the number of requests and the facts of quantities. Empty cells are left out."""
        grouping = self._grouping()
        found: list[Sums] = []
        at: list[IntArray] = []
        with reading(self.engine) as connection:
            for width_s, stretches in self._made():
                for stretch in stretches:
                    for start, simulated, sums in load_sums(
                        connection, grouping, width_s, *stretch, quantities
                    ):
                        self.simulated |= simulated
                        found.append(sums)
                        at.append(np.full(sums.cells.size, start))
        labels = self._meaning(grouping)
        cells = [self._cells(end_to_end_sums(found).cells, _joined(at), labels)] if found else []
        for stretch in self.plan.requests:
            table = self._requests(*stretch, quantities)
            cells_of_rows = self._cells_of_requests(table)
            found.append(sums_of(table, cells_of_rows, quantities))
            cells.append(found[-1].cells)
        together, where = end_to_end_sums(found), _joined(cells)
        inside = where >= 0
        return add_sums(
            Sums(
                where[inside],
                together.requests[inside],
                {name: fact[inside] for name, fact in together.facts.items()},
            ),
            where[inside],
        )

    def quantiles(self, latency: str, ranks: Ranks) -> Quantiles:
        """Return the durations at given ranks, by cell; NaN for a cell without durations.

        Args:
            latency: one of LATENCIES.
            ranks: for example `buckets.nearest_ranks((0.5, 0.99))`.
        """
        grouping = self._grouping()
        loaded: list[tuple[IntArray, Sketches]] = []
        with reading(self.engine) as connection:
            for width_s, stretches in self._made():
                for stretch in stretches:
                    starts, sketches, simulated = load_sketches(
                        connection, width_s, *stretch, latency, grouping
                    )
                    self.simulated |= simulated
                    loaded.append((starts, sketches))
        meaning = self._meaning(grouping)
        several: list[Sketches] = []
        cells: list[IntArray] = []
        for starts, sketches in loaded:
            cell = self._cells(sketches.cells, starts, meaning)
            cells.append(cell[cell >= 0])
            several.append(only_sketches(sketches, cell >= 0))
        for stretch in self.plan.requests:
            table = self._requests(*stretch, [latency])
            of_rows = sketches_of(table, self._cells_of_requests(table), latency)
            cells.append(of_rows.cells[of_rows.cells >= 0])
            several.append(only_sketches(of_rows, of_rows.cells >= 0))
        number = len(self.groups) * self.steps.number
        return ranked(end_to_end_sketches(several), _joined(cells), number, ranks)

    def _made(self) -> list[tuple[int, list[tuple[int, int]]]]:
        return [(HOUR_S, self.plan.hours), (MINUTE_S, self.plan.minutes)]

    def _grouping(self) -> int:
        """Return the smallest grouping that has all labels of the query, and those that the
        reader's access depends on."""
        asked = {*self.by, *self.equals, *self.unless}
        access = access_of(self.engine)
        visible = range(len(GROUPINGS)) if access is None else visible_groupings(access)
        return max(i for i in visible if asked <= set(GROUPINGS[i]))

    def _meaning(self, grouping: int) -> dict[int, LabelSet]:
        # Read the label sets after the buckets, because they are stored before the buckets that use
        # them.
        known = known_label_sets(self.engine)
        if grouping == 0:
            return {number: labels for number, (labels, _) in known.items()}
        sets = set(grouped((labels for labels, _ in known.values()), grouping))
        return {number_of(labels): labels for labels in sets}

    def _cells(
        self, numbers: IntArray, at_unix_s: IntArray, meaning: Mapping[int, LabelSet]
    ) -> IntArray:
        """Return the cell of each label set in each bucket, or −1 if it is not in the query."""
        found, place = np.unique(numbers, return_inverse=True)
        groups = np.array(
            [self._group(meaning[each]) if each in meaning else -1 for each in found.tolist()],
            np.int64,
        )
        return self._at(groups[place], at_unix_s)

    def _cells_of_requests(self, table: pa.Table) -> IntArray:
        found, place = combinations(table)
        groups = np.array([self._group(labels) for labels in found], np.int64)
        at_unix_s = table["received_unix_ns"].to_numpy() // _MINUTE_NS * MINUTE_S
        return self._at(groups[place], at_unix_s)

    def _group(self, labels: LabelSet) -> int:
        values = dict(zip(LABELS, labels, strict=True))
        if any(values[label] != wanted for label, wanted in self.equals.items()):
            return -1
        if any(values[label] == unwanted for label, unwanted in self.unless.items()):
            return -1
        group = tuple(values[label] for label in self.by)
        if group not in self.groups:
            self.groups.append(group)
        return self.groups.index(group)

    def _at(self, groups: IntArray, at_unix_s: IntArray) -> IntArray:
        step = (at_unix_s - self.steps.first_unix_s) // self.steps.width_s
        cells = groups * self.steps.number + np.clip(step, 0, self.steps.number - 1)
        return np.where(groups < 0, -1, cells)

    def _requests(self, start: int, end: int, columns: Sequence[str]) -> pa.Table:
        names = dict.fromkeys(("received_unix_ns", "source", *LABELS, *columns))
        table = request_table(self.engine, _window(start, end), columns=list(names))
        self.simulated |= Source.SIMULATOR.value in table["source"].unique().to_pylist()
        return table


def rollups(
    engine: Engine,
    window: Window,
    *,
    by: Sequence[str] = (),
    equals: Mapping[str, str | None] = _ALL,
    unless: Mapping[str, str] = _ALL,
    step_s: int | None = None,
    first_unix_s: int | None = None,
) -> Rollups | None:
    """Query the rollups of a window.

    Args:
        engine: from `open_database`.
        window: range of `received_unix_ns`, which is widened to whole buckets.
        by: labels to group by, or an empty list for one group.
        equals: the required value of each label. The value None selects requests without the label.
        unless: for each label, the value to exclude.
        step_s: the length of the result's steps, a multiple of a minute, or None for one step.
        first_unix_s: the start of the first step, or None for the start of the window.

    Returns: the query, or None if the database has no rollups yet.

    Raises:
        ValueError: rollups do not have a label, or the step is invalid.
    """
    for label in (*by, *equals, *unless):
        if label not in LABELS:
            raise ValueError(f"rollups have no label {label!r}; allowed: {', '.join(LABELS)}")
    if step_s is not None and (step_s <= 0 or step_s % MINUTE_S):
        raise ValueError(f"a step must be a multiple of {MINUTE_S} s, not {step_s}")
    how = plan(engine, window, step_s)
    if how is None:
        return None
    first = how.from_unix_s if first_unix_s is None else first_unix_s
    length_s = max(1, how.to_unix_s - first)
    width_s = step_s or length_s
    steps = Steps(first, width_s, -(-length_s // width_s))
    return Rollups(engine, how, steps, tuple(by), dict(equals), dict(unless))


def rolled_label_values(engine: Engine, window: Window, label: str) -> list[str] | None:
    """Return the values of a label in a window, sorted, or None if there are no rollups yet.

    For long windows, in which reading each request would take too long. The result may include
    values that occurred only shortly before or after the window. Unknown values are left out.
    """
    how = plan(engine, window)
    if how is None:
        return None
    place = LABELS.index(label)
    known = known_label_sets(engine).values()
    values = {labels[place] for labels, newest in known if newest >= how.from_unix_s - HOUR_S}
    for stretch in how.requests:
        values.update(label_values(engine, _window(*stretch), label))
    return sorted(value for value in values if value is not None)


def _window(from_unix_s: int, to_unix_s: int) -> Window:
    return Window(from_unix_s * SECOND_NS, to_unix_s * SECOND_NS)


def _joined(several: Sequence[IntArray]) -> IntArray:
    return np.concatenate(several) if several else np.zeros(0, np.int64)
