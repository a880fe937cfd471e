"""Query rollups: counts, sums and quantiles of a window, for each group of labels and time step.

If a minute has no rollup, its requests are read. A quantile is the duration of one of the requests,
with an error of up to 1 % (telemetry/sketches.py).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from sqlalchemy import Column, Connection, Engine, func, select

from store.access.restricted import access_of
from store.access.tables import visible_groupings
from store.connections import reading
from store.queries import label_values, request_count, request_table
from store.rollups.buckets import (
    Quantiles,
    Ranks,
    RollupSums,
    Sketches,
    add_sums,
    end_to_end_sketches,
    end_to_end_sums,
    only_sketches,
    ranked,
    sketches_of,
    sums_of,
)
from store.rollups.coded_labels import CodedLabels, LabelSet
from store.rollups.incomplete_groups import (
    IncompleteGroups,
    UnnamedRequests,
    find_incomplete_groups,
)
from store.rollups.label_storage import known_values, lack_names, meaning, named_from
from store.rollups.marks import SECOND_NS, whole_from_unix_s
from store.rollups.plan import RollupPlan, neighbours, plan
from store.rollups.storage import StoredSketches, load_sketches, load_sums, missing_buckets
from store.rollups.tables import GROUPINGS, HOUR_S, LABELS, MINUTE_S, ROLLUPS
from telemetry.access import Access
from telemetry.labels import OTHER
from telemetry.requests import Source
from telemetry.sketches import IntArray
from telemetry.window import Window

SKETCHES_AT_ONCE = 120
"""Number of buckets whose sketches are read at a time. Reading a large fleet's day (130 MB) in one
part takes twice the CPU time of reading 12 parts."""
_MINUTE_NS = MINUTE_S * SECOND_NS
_AT = {label: at for at, label in enumerate(LABELS)}
_ALL: Mapping[str, Any] = MappingProxyType({})
_Part = TypeVar("_Part")
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class TimeSteps:
    """Time steps of equal width. Step i begins at `first_unix_s + i * width_s`."""

    first_unix_s: int
    width_s: int
    number: int


@dataclass(slots=True)
class Rollups:
    """A query of rollups. A result has one value for each cell, which is one group of requests in
    one time step. Groups are numbered as in `groups`."""

    engine: Engine
    plan: RollupPlan
    steps: TimeSteps
    by: Sequence[str]
    equals: Mapping[str, str | None]
    unless: Mapping[str, str]
    groups: list[LabelSet] = field(default_factory=list)
    """The label values of each group. Groups are added when results are read."""
    simulated: bool = False
    _places: dict[LabelSet, int] = field(default_factory=dict)
    _group_of: dict[int, int] = field(default_factory=dict)
    """Maps the number of a label set to its group."""
    _meanings: dict[int, dict[int, LabelSet]] = field(default_factory=dict)
    """Maps the numbers of label sets to the label sets, for each grouping."""
    _unnamed: dict[LabelSet, UnnamedRequests] = field(default_factory=dict)
    """Maps the values of the query's labels to the requests with `_other`."""
    _older: bool = False
    """Whether buckets of an older version were read. Such buckets are read from the grouping with
    all labels."""

    def again(self, by: Sequence[str]) -> "Rollups":
        """The same query with other labels to group by."""
        return Rollups(
            self.engine,
            self.plan,
            self.steps,
            tuple(by),
            self.equals,
            self.unless,
            _meanings=self._meanings,
        )

    def requests_deleted_before_unix_ns(self) -> int:
        """The time before which only rollups remain."""
        return (whole_from_unix_s(self.engine, MINUTE_S) or 0) * SECOND_NS

    def hidden(self) -> IncompleteGroups:
        """The groups that may lack requests, and the number of requests that may be missing.

        Call this after `sums`.
        """
        grouping = self._grouping()
        if (missing := self._not_visible(grouping)) > 0 or self._may_lack_names():
            return IncompleteGroups(requests=missing, groups=frozenset(self.groups))
        if not self._unnamed:
            return IncompleteGroups()
        # The limit on label sets never replaces a grouping's own label by `_other`, nor the model
        # in the second grouping. Whether these are `_other` depends only on the stored names.
        label: str | None = "model" if grouping == 1 else GROUPINGS[grouping][-1]
        if self._older:
            label = None
        since = {} if label is None else named_from(self.engine, label)
        labels = (*self.by, *self.equals)

        def named(at: int, value: str | None, first_unix_s: int) -> bool:
            named_from_unix_s = since.get(value or "") if labels[at] == label else None
            return named_from_unix_s is not None and named_from_unix_s <= first_unix_s

        return find_incomplete_groups(
            self._unnamed, self.groups, tuple(self.equals.values()), named
        )

    def _may_lack_names(self) -> bool:
        """Whether some visible requests may be in hidden label sets, because their tenant or model
        is stored as `_other`."""
        access = access_of(self.engine)
        if access is None or not access.limits_rows:
            return False
        return self._older or any(
            lack_names(self.engine, label, names, self.plan.from_unix_s)
            for label, names in (("tenant", access.tenants), ("model", access.models))
            if names is not None
        )

    def _not_visible(self, grouping: int) -> int:
        """The number of requests that the reader may see, but that this grouping hides, because it
        stores their tenant or model as `_other`. Another grouping shows these requests."""
        access = access_of(self.engine)
        if access is None or not access.limits_rows:
            return 0
        places = {grouping, *_fewest_hidden(access)}
        if len(places) == 1:
            return 0
        visible = {place: self._visible(place) for place in places}
        return max(visible.values()) - visible[grouping]

    def _visible(self, grouping: int) -> int:
        whole = Rollups(
            self.engine,
            self.plan,
            self.steps,
            GROUPINGS[grouping],
            {},
            {},
            _meanings=self._meanings,
        )
        return int(whole.sums(()).requests.sum())

    def number(self) -> int:
        """The number of requests in the window that the reader may see, ignoring `equals`."""
        access = access_of(self.engine)
        if access is not None and access.limits_rows:
            return max(map(self._visible, _fewest_hidden(access)))
        waiting = (request_count(self.engine, _window(*each)) for each in self.plan.requests)
        return self._total(ROLLUPS.c.requests) + sum(waiting)

    def _total(self, column: "Column[int]") -> int:
        total = 0
        with reading(self.engine) as connection:
            for width_s, time_ranges in self._made():
                for start, end in time_ranges:
                    found = connection.scalar(
                        select(func.sum(column)).where(
                            ROLLUPS.c.grouping == 1,
                            ROLLUPS.c.width_s == width_s,
                            ROLLUPS.c.from_unix_s >= start,
                            ROLLUPS.c.from_unix_s < end,
                        )
                    )
                    total += int(found or 0)  # PostgreSQL returns a Decimal
        return total

    def sums(self, quantities: Sequence[str]) -> RollupSums:
        """The number of requests and the `FACTS` of each quantity, for each cell that is not
        empty."""
        loaded: dict[int, list[tuple[IntArray, RollupSums]]] = defaultdict(list)
        with reading(self.engine) as connection:
            for grouping, width_s, time_range in self._stored(connection):
                for start, simulated, sums in load_sums(
                    connection, grouping, width_s, *time_range, quantities
                ):
                    self.simulated |= simulated
                    loaded[grouping].append((np.full(sums.cells.size, start), sums))
        self._unnamed.clear()
        self._older = 0 in loaded and self._grouping() != 0
        found: list[RollupSums] = []
        cells: list[IntArray] = []
        for grouping, several in loaded.items():
            sums = end_to_end_sums([each for _, each in several])
            starts = _concatenate([start for start, _ in several])
            labels = self._label_sets(grouping, sums.cells)
            self._note_unnamed(sums, starts, labels)
            found.append(sums)
            cells.append(self._cells(sums.cells, starts, labels))
        for time_range in self.plan.requests:
            table = self._requests(*time_range, quantities)
            cells_of_rows = self._cells_of_requests(table)
            found.append(sums_of(table, cells_of_rows, quantities))
            cells.append(found[-1].cells)
        together, where = end_to_end_sums(found), _concatenate(cells)
        inside = where >= 0
        return add_sums(
            RollupSums(
                where[inside],
                together.requests[inside],
                {name: fact[inside] for name, fact in together.facts.items()},
            ),
            where[inside],
        )

    def quantiles(self, latency: str, ranks: Ranks) -> Quantiles:
        """The durations with given ranks in each cell, or NaN in a cell without durations."""
        with reading(self.engine) as connection:
            made = list(self._stored(connection))
        parts = [
            (grouping, width_s, first, min(end, first + SKETCHES_AT_ONCE * width_s))
            for grouping, width_s, (start, end) in made
            for first in range(start, end, SKETCHES_AT_ONCE * width_s)
        ]
        several: list[Sketches] = []
        cells: list[IntArray] = []

        def load(part: tuple[int, int, int, int]) -> tuple[int, StoredSketches]:
            grouping, width_s, start, end = part
            with reading(self.engine) as connection:
                return grouping, load_sketches(connection, width_s, start, end, latency, grouping)

        for grouping, stored in _read_ahead(load, parts):
            self.simulated |= stored.simulated
            labels = self._label_sets(grouping, stored.cells)
            cell = self._cells(stored.cells, stored.at_unix_s, labels)
            cells.append(cell[cell >= 0])
            several.append(stored.only(cell >= 0))
        for time_range in self.plan.requests:
            table = self._requests(*time_range, [latency])
            of_rows = sketches_of(table, self._cells_of_requests(table), latency)
            cells.append(of_rows.cells[of_rows.cells >= 0])
            several.append(only_sketches(of_rows, of_rows.cells >= 0))
        number = len(self.groups) * self.steps.number
        return ranked(end_to_end_sketches(several), _concatenate(cells), number, ranks)

    def _made(self) -> list[tuple[int, list[tuple[int, int]]]]:
        return [(HOUR_S, self.plan.hours), (MINUTE_S, self.plan.minutes)]

    def _stored(self, connection: Connection) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """Yield the grouping, width and time range of the buckets to read."""
        grouping = self._grouping()
        for width_s, time_ranges in self._made():
            for time_range in time_ranges:
                missing = []
                if grouping > 1:
                    missing = missing_buckets(connection, grouping, width_s, *time_range)
                yield grouping, width_s, time_range
                for older in neighbours(np.array(missing, np.int64), width_s):
                    yield 0, width_s, older

    def _grouping(self) -> int:
        needed = {*self.by, *self.equals, *self.unless}
        access = access_of(self.engine)
        visible = range(len(GROUPINGS)) if access is None else visible_groupings(access)
        fitting = (place for place in visible if needed <= set(GROUPINGS[place]))
        return min(fitting, key=lambda each: len(GROUPINGS[each]))

    def _label_sets(self, grouping: int, numbers: IntArray) -> Mapping[int, LabelSet]:
        # Read the label sets after the buckets, because label sets are stored before the buckets
        # that use them.
        known = self._meanings.setdefault(grouping, {})
        missing = set(pa.array(numbers).unique().to_pylist()) - known.keys()
        if missing:
            known.update(meaning(self.engine, grouping, self.plan.from_unix_s, missing))
        return known

    def _note_unnamed(
        self, sums: RollupSums, at_unix_s: IntArray, labels: Mapping[int, LabelSet]
    ) -> None:
        positions = [LABELS.index(label) for label in (*self.by, *self.equals)]
        if not positions:
            return
        unnamed = [
            number for number, each in labels.items() if OTHER in [each[at] for at in positions]
        ]
        rows = np.flatnonzero(np.isin(sums.cells, np.array(unnamed, np.int64)))
        found, place = np.unique(sums.cells[rows], return_inverse=True)
        requests = np.bincount(place, sums.requests[rows], found.size)
        first = np.full(found.size, np.iinfo(np.int64).max)
        np.minimum.at(first, place, at_unix_s[rows])
        for number, more, start in zip(
            found.tolist(), requests.tolist(), first.tolist(), strict=True
        ):
            key = tuple(labels[number][at] for at in positions)
            before = self._unnamed.get(key, UnnamedRequests(0, start))
            self._unnamed[key] = UnnamedRequests(
                before.requests + int(more), min(before.first_unix_s, start)
            )

    def _cells(
        self, numbers: IntArray, at_unix_s: IntArray, meaning: Mapping[int, LabelSet]
    ) -> IntArray:
        """Return the cell of each label set, or −1 if the query does not select the label set."""
        # Arrow's hash table is several times faster than sorting.
        coded = pa.array(numbers).dictionary_encode()
        found = coded.dictionary.to_pylist()
        known = self._group_of
        for number in found:
            if number not in known:
                known[number] = self._group(meaning[number]) if number in meaning else -1
        groups = np.array([known[number] for number in found], np.int64)
        return self._at(groups[coded.indices.to_numpy()], at_unix_s)

    def _cells_of_requests(self, table: pa.Table) -> IntArray:
        coded = CodedLabels.of(table)
        rows, place, _ = coded.distinct()
        groups = np.array([self._group(labels) for labels in coded.label_sets(rows)], np.int64)
        at_unix_s = table["received_unix_ns"].to_numpy() // _MINUTE_NS * MINUTE_S
        return self._at(groups[place], at_unix_s)

    def _group(self, labels: LabelSet) -> int:
        for label, wanted in self.equals.items():
            if labels[_AT[label]] != wanted:
                return -1
        for label, unwanted in self.unless.items():
            if labels[_AT[label]] == unwanted:
                return -1
        group = tuple([labels[_AT[label]] for label in self.by])
        place = self._places.setdefault(group, len(self.groups))
        if place == len(self.groups):
            self.groups.append(group)
        return place

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
        window: range of `received_unix_ns`, widened to whole buckets.
        by: labels to group by. Without labels, there is one group.
        equals: required labels. None selects requests without the label.
        unless: maps a label to the value to exclude.
        step_s: a multiple of a minute, or None for one step.
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
    steps = TimeSteps(first, width_s, -(-length_s // width_s))
    return Rollups(engine, how, steps, tuple(by), dict(equals), dict(unless))


def rolled_label_values(engine: Engine, window: Window, label: str) -> list[str] | None:
    """The known values of a label in a window, sorted, or None without rollups.

    Values from shortly before or after the window may be included.
    """
    how = plan(engine, window)
    if how is None:
        return None
    values = known_values(engine, how.from_unix_s - HOUR_S, label)
    for time_range in how.requests:
        values.update(label_values(engine, _window(*time_range), label))
    return sorted(values)


def _fewest_hidden(access: Access) -> list[int]:
    """The groupings that hide the fewest requests from a limited reader.

    The grouping with the fewest labels never replaces a tenant by `_other`. If it has the label
    tenant, it may replace models. The grouping with all labels may replace tenants, but no models.
    """
    visible = visible_groupings(access)
    if access.by_tenant and any(each.models is not None for each in access.grants):
        return visible
    return [min(visible, key=lambda each: len(GROUPINGS[each]))]


def _read_ahead(read: Callable[[_Part], _Read], parts: Sequence[_Part]) -> Iterator[_Read]:
    """Read the parts ahead: a thread reads the next part while the caller uses the current part."""
    if not parts:
        return
    if len(parts) == 1:
        yield read(parts[0])
        return
    with ThreadPoolExecutor(1, thread_name_prefix="rollups") as thread:
        ahead = thread.submit(read, parts[0])
        for part in parts[1:]:
            found, ahead = ahead.result(), thread.submit(read, part)
            yield found
        yield ahead.result()


def _window(from_unix_s: int, to_unix_s: int) -> Window:
    return Window(from_unix_s * SECOND_NS, to_unix_s * SECOND_NS)


def _concatenate(several: Sequence[IntArray]) -> IntArray:
    return np.concatenate(several) if several else np.zeros(0, np.int64)
