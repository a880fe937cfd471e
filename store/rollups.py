"""Making rollups: a minute's of its requests, an hour's of its minutes.

A bucket is made as a whole, of what is there, and replaces the one before. So a request that
was told twice counts once, one that comes late makes its own minute anew, and what dies
half-way is done again: nothing is ever added to a number that was kept.

Two that make the same bucket do not undo each other's work: who finds a mark gone that it
read has been overtaken, and leaves what the other wrote. (ClickHouse, without transactions,
has one at a time.)
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from store.buckets import Bucket, merged, sketches_of, sums_of
from store.columns import in_parts, request_columns
from store.label_sets import LabelSet, LabelSets, grouped, number_of
from store.queries import Window, request_table
from store.reaching import reading, writing
from store.rollup_marks import SECOND_NS, begin, mark, marked, unmark, whole_from_unix_s
from store.rollup_storage import (
    keep,
    keep_label_sets,
    known_label_sets,
    load_buckets,
)
from store.rollup_tables import GROUPINGS, HOUR_S, LABELS, MINUTE_S, QUANTITIES, WIDTHS_S
from telemetry.requests import LATENCIES, Source

AT_ONCE: Final = 100_000
"""Requests that are in memory at once: some 40 MB. A minute may have a million."""
LAG_S: Final = 60
"""A bucket that is over is given so long for what is still under way."""

COLUMNS: Final = (*LABELS, "source", *QUANTITIES)
"""Of requests, what rollups are made of."""

_LATEST_NS: Final = 2**63 - 1
_EARLIEST_NS: Final = -(2**63)


class _Overtaken(Exception):  # noqa: N818 -- it says what is the case
    """Another made the bucket meanwhile."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What was done, and how many marked buckets are over and not made yet."""

    made: int
    left: int


def settle(engine: Engine, now_unix_s: int, most: int | None = None) -> Settled:
    """Make the buckets that are marked and over, the oldest first, minutes before hours.

    Args:
        engine: from `open_database`; the first time, what is there is marked.
        now_unix_s: the present.
        most: how many to make at most, so that one who waits for it can stop.

    Raises:
        StoreUnavailable: the database does not answer; what was made is kept.
    """
    begin(engine)
    known = known_label_sets(engine)
    label_sets = LabelSets(dict(known.values()))
    made = left = 0
    for width_s in WIDTHS_S:
        whole_from = whole_from_unix_s(engine, width_s) or 0
        for start, marks in marked(engine, width_s).items():
            if start + width_s + LAG_S > now_unix_s:
                continue
            if most is not None and made >= most:
                left += 1
                continue
            _make(engine, width_s, start, marks, label_sets, whole=start >= whole_from)
            made += 1
    return Settled(made, left)


def _make(
    engine: Engine,
    width_s: int,
    start: int,
    marks: list[int],
    label_sets: LabelSets,
    *,
    whole: bool,
) -> None:
    buckets = {}
    if whole:
        make = _of_requests if width_s == MINUTE_S else _of_minutes
        buckets = make(engine, start, label_sets)
    try:
        with writing(engine) as connection:
            if whole:
                keep(connection, width_s, start, buckets)
                keep_label_sets(connection, label_sets)
                if width_s == MINUTE_S:
                    mark(connection, HOUR_S, [start // HOUR_S * HOUR_S])
            if unmark(connection, width_s, start, marks) != len(marks):
                raise _Overtaken
    except _Overtaken:
        return
    label_sets.changed.clear()


def _of_requests(engine: Engine, start: int, label_sets: LabelSets) -> dict[bool, Bucket]:
    several: dict[bool, list[Bucket]] = defaultdict(list)
    for part in in_parts(engine, _window(start, start + MINUTE_S), AT_ONCE):
        table = request_columns(engine, part, COLUMNS)
        for simulated, bucket in buckets_of(table, label_sets, start)[0].items():
            several[simulated].append(bucket)
    return {simulated: merged(parts) for simulated, parts in several.items()}


def _of_minutes(engine: Engine, start: int, _label_sets: LabelSets) -> dict[bool, Bucket]:
    with reading(engine) as connection:
        minutes = load_buckets(connection, MINUTE_S, start, start + HOUR_S)
    return {simulated: merged(several) for simulated, several in minutes.items()}


def requests_of(engine: Engine, from_unix_s: int, to_unix_s: int) -> pa.Table:
    """The requests of a stretch of time, with what rollups are made of."""
    return request_table(engine, _window(from_unix_s, to_unix_s), columns=COLUMNS)


def _window(from_unix_s: int, to_unix_s: int) -> Window:
    return Window(
        max(_EARLIEST_NS, from_unix_s * SECOND_NS), min(_LATEST_NS, to_unix_s * SECOND_NS)
    )


def buckets_of(
    table: pa.Table, label_sets: LabelSets, from_unix_s: int
) -> tuple[dict[bool, Bucket], dict[int, LabelSet]]:
    """The rollups of a bucket's requests, simulated ones apart, and what their cells mean.

    Args:
        table: with COLUMNS.
        label_sets: those known; new ones are entered.
        from_unix_s: the bucket's start.
    """
    simulator = pc.equal(table["source"], Source.SIMULATOR.value)
    meaning: dict[int, LabelSet] = {}
    buckets = {}
    for simulated in (False, True):
        part = table.filter(simulator if simulated else pc.invert(simulator))
        if part.num_rows:
            buckets[simulated] = _bucket_of(part, label_sets, from_unix_s, meaning)
    return buckets, meaning


def _bucket_of(
    table: pa.Table, label_sets: LabelSets, from_unix_s: int, meaning: dict[int, LabelSet]
) -> Bucket:
    assigned = label_sets.assign(table, from_unix_s)
    sums, sketches = {}, {}
    for grouping in range(len(GROUPINGS)):
        sets = grouped(assigned.sets, grouping)
        numbers = [number_of(each) for each in sets]
        meaning.update(zip(numbers, sets, strict=True))
        cells = np.array(numbers, np.int64)[assigned.place]
        sums[grouping] = sums_of(table, cells)
        for latency in LATENCIES:
            sketches[latency, grouping] = sketches_of(table, cells, latency)
    return Bucket(assigned.overflowed, sums, sketches)
