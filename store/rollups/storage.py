"""Write rollups to their tables, and read rollups."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Table, and_, select

from store import dialects
from store.dialects.bulk import IN_BULK
from store.rollups.buckets import (
    FloatArray,
    RollupBucket,
    RollupSums,
    Sketches,
    nothing,
    places_of_bins,
)
from store.rollups.tables import (
    BIN,
    BINS,
    COUNTS,
    FACT,
    LABEL_SET,
    NUMBER,
    QUANTITIES,
    ROLLUPS,
    SIZE,
    packed,
)
from telemetry.requests import LATENCIES
from telemetry.sketches import IntArray


def store_buckets(
    connection: Connection, width_s: int, from_unix_s: int, buckets: Mapping[bool, RollupBucket]
) -> None:
    """Replace a stored bucket.

    Args:
        buckets: the rollups. The key is True for simulated requests. If a key is absent, the stored
            rollup is deleted.
    """
    dialect = dialects.of(connection.engine)
    key = {"width_s": width_s, "from_unix_s": from_unix_s}
    for simulated in (False, True):
        bucket = buckets.get(simulated)
        rows = {} if bucket is None else _rows(bucket, {**key, "simulated": simulated})
        for table in (BINS, ROLLUPS):
            if table in rows:
                dialect.upsert(connection, table, rows[table])
            else:
                dialect.remove(connection, table, _at(table, key, simulated))


def load_buckets(
    connection: Connection, width_s: int, from_unix_s: int, to_unix_s: int
) -> dict[bool, list[RollupBucket]]:
    """Load the buckets that start in a time range. Key True has the simulated requests."""
    sums: dict[tuple[int, bool], dict[int, RollupSums]] = defaultdict(dict)
    sketches: dict[tuple[int, bool], dict[tuple[str, int], Sketches]] = defaultdict(dict)
    time_range = width_s, from_unix_s, to_unix_s
    names = ("grouping", *_HEAD, *QUANTITIES)
    statement = select(*(ROLLUPS.c[name] for name in names)).where(
        _buckets_between(ROLLUPS, *time_range)
    )
    rows = connection.execute(statement, execution_options={IN_BULK: True})
    for grouping, start, simulated, *facts in rows:
        sums[start, bool(simulated)][grouping] = _sums(facts, QUANTITIES)
    bins = [BINS.c[name] for name in ("latency", "grouping", *_SKETCH)]
    for latency, grouping, start, simulated, *columns in connection.execute(
        select(*bins).where(_buckets_between(BINS, *time_range))
    ):
        sketches[start, bool(simulated)][latency, grouping] = _sketches([columns])
    found_buckets: dict[bool, list[RollupBucket]] = defaultdict(list)
    for key, by_grouping in sums.items():
        found_buckets[key[1]].append(RollupBucket(by_grouping, sketches[key]))
    return dict(found_buckets)


def bucket_starts(
    connection: Connection, width_s: int, from_unix_s: int, to_unix_s: int
) -> list[int]:
    """The starts of the stored buckets in a time range, in order."""
    between = _buckets_between(ROLLUPS, width_s, from_unix_s, to_unix_s)
    start = ROLLUPS.c.from_unix_s
    return list(connection.scalars(select(start).distinct().where(between).order_by(start)))


def missing_buckets(
    connection: Connection, grouping: int, width_s: int, from_unix_s: int, to_unix_s: int
) -> list[int]:
    """The starts of the buckets without this grouping. An older version built these buckets."""
    between = _buckets_between(ROLLUPS, width_s, from_unix_s, to_unix_s)
    whole, grouped = (
        set(connection.scalars(select(ROLLUPS.c.from_unix_s).where(each, between)))
        for each in (ROLLUPS.c.grouping == 0, ROLLUPS.c.grouping == grouping)
    )
    return sorted(whole - grouped)


def load_sums(
    connection: Connection,
    grouping: int,
    width_s: int,
    from_unix_s: int,
    to_unix_s: int,
    names: Sequence[str],
) -> list[tuple[int, bool, RollupSums]]:
    """Load the start, the simulated flag and the sums of the buckets that start in a time range."""
    columns = [ROLLUPS.c[name] for name in (*_HEAD, *names)]
    statement = select(*columns).where(
        ROLLUPS.c.grouping == grouping, _buckets_between(ROLLUPS, width_s, from_unix_s, to_unix_s)
    )
    rows = connection.execute(statement, execution_options={IN_BULK: True})
    return [(start, bool(simulated), _sums(facts, names)) for start, simulated, *facts in rows]


def _sums(stored: Sequence[Any], names: Sequence[str]) -> RollupSums:
    """Unpack the label sets, the numbers of requests and the facts of a bucket."""
    sets, requests, *facts = stored
    cells = np.frombuffer(sets, LABEL_SET)
    known = {name: _facts(fact, cells.size) for name, fact in zip(names, facts, strict=True)}
    return RollupSums(cells, np.frombuffer(requests, NUMBER), known)


@dataclass(frozen=True, slots=True)
class StoredSketches:
    """The stored sketches of one latency: one row for each bucket."""

    rows: Sequence[Any]
    cells: IntArray

    @property
    def at_unix_s(self) -> IntArray:
        """The start of each sketch's bucket."""
        number = [len(row.label_sets) // LABEL_SET.itemsize for row in self.rows]
        return np.repeat(np.array([row.from_unix_s for row in self.rows], np.int64), number)

    @property
    def simulated(self) -> bool:
        """Whether any sketch contains simulated requests."""
        return any(row.simulated for row in self.rows)

    def only(self, wanted: NDArray[np.bool_]) -> Sketches:
        """Select the sketches for which `wanted` is true. The bins of other sketches are not
        copied."""
        if wanted.all():
            return _sketches([row[2:] for row in self.rows])
        sizes = np.frombuffer(b"".join(row.sizes for row in self.rows), SIZE).astype(np.int64)
        place = places_of_bins(sizes, wanted)
        first = np.cumsum([0, *(len(row.bins) // BIN.itemsize for row in self.rows)])
        ends = np.searchsorted(place, first)
        bins, counts = [np.zeros(0, BIN)], [np.zeros(0, COUNTS[0])]
        for row, base, begin, end in zip(self.rows, first, ends, ends[1:], strict=False):
            if begin < end:
                of_row = place[begin:end] - base
                bins.append(np.frombuffer(row.bins, BIN)[of_row])
                counts.append(_counts(row.bins, row.counts)[of_row])
        return Sketches(
            self.cells[wanted], sizes[wanted], np.concatenate(bins), np.concatenate(counts)
        )


def load_sketches(
    connection: Connection,
    width_s: int,
    from_unix_s: int,
    to_unix_s: int,
    latency: str,
    grouping: int,
) -> StoredSketches:
    """Load the sketches of each label set, from the buckets that start in a time range."""
    statement = select(*(BINS.c[name] for name in _SKETCH)).where(
        BINS.c.latency == latency,
        BINS.c.grouping == grouping,
        _buckets_between(BINS, width_s, from_unix_s, to_unix_s),
    )
    rows = connection.execute(statement, execution_options={IN_BULK: True}).all()
    cells = np.frombuffer(b"".join(row.label_sets for row in rows), LABEL_SET)
    return StoredSketches(rows, cells)


_COUNTS: Final = {kind.itemsize: kind for kind in COUNTS}
_HEAD: Final = ("from_unix_s", "simulated", "label_sets", "set_requests")
_SKETCH: Final = ("from_unix_s", "simulated", "label_sets", "sizes", "bins", "counts")


def _rows(bucket: RollupBucket, key: Mapping[str, Any]) -> dict[Table, list[dict[str, Any]]]:
    rollups = [
        {
            "grouping": grouping,
            **key,
            "requests": int(sums.requests.sum()),
            "overflowed": 0,
            "label_sets": packed(sums.cells, LABEL_SET),
            "set_requests": packed(sums.requests, NUMBER),
            **{name: _packed_facts(name, fact) for name, fact in sums.facts.items()},
        }
        for grouping, sums in bucket.sums.items()
    ]
    bins = [
        {
            "latency": latency,
            "grouping": grouping,
            **key,
            "label_sets": packed(sketches.cells, LABEL_SET),
            "sizes": packed(sketches.sizes, SIZE),
            "bins": packed(sketches.bins, BIN),
            "counts": packed(sketches.counts, _least_kind(sketches.counts)),
        }
        for (latency, grouping), sketches in bucket.sketches.items()
    ]
    return {ROLLUPS: rollups, BINS: bins}


def _packed_facts(name: str, fact: FloatArray) -> bytes | None:
    if not fact[:, 0].any():
        return None
    floats = fact[:, 1:] if name in LATENCIES else fact[:, 1:2]
    return packed(floats.T, FACT) + packed(fact[:, 0], NUMBER)


def _facts(kept: bytes | None, cells: int) -> FloatArray:
    facts = nothing(cells)
    if kept is None:
        return facts
    numbers = cells * NUMBER.itemsize
    floats = np.frombuffer(kept[:-numbers], FACT).reshape(-1, cells)
    facts[:, 1 : 1 + len(floats)] = floats.T
    facts[:, 0] = np.frombuffer(kept[-numbers:], NUMBER)
    return facts


def _least_kind(counts: IntArray) -> "np.dtype[Any]":
    most = int(counts.max(initial=0))
    return next(kind for kind in COUNTS if most <= np.iinfo(kind).max)


def _sketches(rows: Sequence[Sequence[bytes]]) -> Sketches:
    if not rows:
        none = np.zeros(0, np.int64)
        return Sketches(none, none, none, none)
    cells, sizes, bins, _ = (b"".join(column) for column in zip(*rows, strict=True))
    counts = [_counts(row[2], row[3]) for row in rows if row[2]]
    return Sketches(
        np.frombuffer(cells, LABEL_SET),
        np.frombuffer(sizes, SIZE),
        np.frombuffer(bins, BIN),
        np.concatenate(counts) if counts else np.zeros(0, np.int64),
    )


def _counts(bins: bytes, counts: bytes) -> IntArray:
    """The counts of a row. Their integer type follows from the number of bytes per bin."""
    return np.frombuffer(counts, _COUNTS[len(counts) * BIN.itemsize // len(bins)])


def _at(table: Table, key: Mapping[str, int], simulated: bool) -> Any:
    return and_(
        table.c.simulated.is_(simulated), *(table.c[name] == value for name, value in key.items())
    )


def _buckets_between(table: Table, width_s: int, from_unix_s: int, to_unix_s: int) -> Any:
    return and_(
        table.c.width_s == width_s,
        table.c.from_unix_s >= from_unix_s,
        table.c.from_unix_s < to_unix_s,
    )
