"""Build rollups of requests: a minute from its requests, and an hour from its minutes."""

from collections import defaultdict
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Engine

from store.columns.request_columns import in_parts, request_columns
from store.connections import reading
from store.rollups.buckets import (
    RollupBucket,
    known_bins,
    known_values,
    merged,
    sketches_at,
    sums_at,
)
from store.rollups.coded_labels import LabelSet
from store.rollups.label_sets import LabelSets, number_of
from store.rollups.label_storage import label_sets_since, load_names, store_label_sets
from store.rollups.marks import REQUEST_ROLLUPS, SECOND_NS, RollupSource
from store.rollups.names import ALIVE_S
from store.rollups.storage import bucket_starts, load_buckets, store_buckets
from store.rollups.tables import HOUR_S, LABELS, MINUTE_S, QUANTITIES
from telemetry.requests import LATENCIES, Source
from telemetry.window import Window

AT_ONCE: Final = 100_000
"""Maximum number of requests to read at a time, about 40 MB."""

MINUTES_AT_ONCE: Final = 5
"""Number of minutes that are merged at a time for an hour. For a large fleet, merging 60 minutes in
one step would take gigabytes of memory."""

COLUMNS: Final = (*LABELS, "source", *QUANTITIES)

_LATEST_NS: Final = 2**63 - 1
_EARLIEST_NS: Final = -(2**63)


class RequestRollups:
    """Builds the rollups of requests by minute and hour, and caches the label sets."""

    of: RollupSource = REQUEST_ROLLUPS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._label_sets = LabelSets(names=load_names(engine))
        self._loaded_from_unix_s: int | None = None

    def build(self, width_s: int, start_unix_s: int) -> dict[bool, RollupBucket]:
        """Build a bucket. Simulated requests get a separate rollup."""
        if width_s == MINUTE_S:
            return self._of_requests(start_unix_s)
        hour: dict[bool, RollupBucket] = {}
        with reading(self._engine) as connection:
            starts = bucket_starts(connection, MINUTE_S, start_unix_s, start_unix_s + HOUR_S)
        for at in range(0, len(starts), MINUTES_AT_ONCE):
            some = starts[at : at + MINUTES_AT_ONCE]
            with reading(self._engine) as connection:
                minutes = load_buckets(connection, MINUTE_S, some[0], some[-1] + MINUTE_S)
            for simulated, several in minutes.items():
                before = [hour[simulated]] if simulated in hour else []
                hour[simulated] = merged([*before, *several])
        return hour

    def store(
        self,
        connection: Connection,
        width_s: int,
        start_unix_s: int,
        made: dict[bool, RollupBucket],
    ) -> None:
        """Replace a stored bucket."""
        store_buckets(connection, width_s, start_unix_s, made)
        store_label_sets(connection, self._label_sets)

    def committed(self) -> None:
        """Mark the new label sets and names as stored."""
        self._label_sets.stored()

    def _of_requests(self, start: int) -> dict[bool, RollupBucket]:
        self._load_label_sets(start - ALIVE_S)
        several: dict[bool, list[RollupBucket]] = defaultdict(list)
        for part in in_parts(self._engine, _window(start, start + MINUTE_S), AT_ONCE):
            table = request_columns(self._engine, part, COLUMNS)
            for simulated, bucket in buckets_of(table, self._label_sets, start)[0].items():
                several[simulated].append(bucket)
        return {simulated: merged(parts) for simulated, parts in several.items()}

    def _load_label_sets(self, from_unix_s: int) -> None:
        loaded_from = self._loaded_from_unix_s
        if loaded_from is None or from_unix_s < loaded_from:
            more = label_sets_since(self._engine, from_unix_s, until_unix_s=loaded_from)
            self._label_sets.known = {**more, **self._label_sets.known}
            self._loaded_from_unix_s = from_unix_s


def _window(from_unix_s: int, to_unix_s: int) -> Window:
    return Window(
        max(_EARLIEST_NS, from_unix_s * SECOND_NS), min(_LATEST_NS, to_unix_s * SECOND_NS)
    )


def buckets_of(
    table: pa.Table, label_sets: LabelSets, from_unix_s: int
) -> tuple[dict[bool, RollupBucket], dict[int, LabelSet]]:
    """Build the rollups of a bucket's simulated requests (key True) and of its other requests (key
    False).

    Args:
        label_sets: the known label sets. The bucket's new label sets are added.

    Returns: the rollups, and a mapping from numbers (`label_sets.number_of`) to label sets.
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
) -> RollupBucket:
    values, bins = known_values(table, QUANTITIES), known_bins(table, LATENCIES)
    sums, sketches = {}, {}
    for grouping, (sets, place) in enumerate(label_sets.assign(table, from_unix_s)):
        numbers = np.array([number_of(each) for each in sets], np.int64)
        meaning.update(zip(numbers.tolist(), sets, strict=True))
        cells, sorted_place = np.unique(numbers, return_inverse=True)
        sorted_place = sorted_place[place]
        sums[grouping] = sums_at(values, cells, sorted_place)
        for latency in LATENCIES:
            sketches[latency, grouping] = sketches_at(bins[latency], cells, sorted_place)
    return RollupBucket(sums, sketches)
