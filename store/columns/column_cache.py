"""Cache columns of long time ranges in chunks of ten minutes.

A chunk is valid while its number of rows and the checksum of their times are unchanged. Reading the
number and the checksum takes a fiftieth of the time for the rows.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Column,
    CompoundSelect,
    Engine,
    bindparam,
    func,
    literal,
    select,
    union_all,
)

from store.connections import reading
from telemetry.window import Window

CHUNK_NS: Final = 600 * 10**9
MAX_ROWS: Final = 2_000_000

_MAX_CHUNKS: Final = 14 * 144
"""Maximum number of chunks in a range (14 days). Longer ranges are not cached."""
_LAST: Final = 2**63 // CHUNK_NS
_ASKED_AT_ONCE: Final = 48
_READ_AT_ONCE: Final = 250_000
"""Maximum number of rows in one query, about 80 MB."""

_PRIME: Final = 1_000_000_007
"""The checksum is the sum of the times modulo this prime, so it fits in 64 bits."""


class _Stamp(NamedTuple):
    rows: int
    sum: int


@dataclass(frozen=True, slots=True)
class _Kept:
    table: pa.Table
    stamps: Sequence[_Stamp]
    """The number of rows and the checksum of this chunk and of its neighbours. The neighbours are
    included, because their rows may replace rows of this chunk."""


class ColumnCache:
    """A cache of columns of one table. Thread-safe.

    Args:
        read: returns the rows of a window in order of time.
        depends: returns whether rows up to `reach_ns` away can replace rows of a table. None means
            that rows are never replaced.
    """

    def __init__(
        self,
        engine: Engine,
        instant: Column[int],
        read: Callable[[Window], pa.Table],
        *,
        depends: Callable[[pa.Table], bool] | None = None,
        reach_ns: int = 0,
        max_rows: int = MAX_ROWS,
    ) -> None:
        self._engine = engine
        self._instant = instant
        self._read = read
        self._depends = depends
        self._reach = -(-reach_ns // CHUNK_NS)
        self._max_rows = max_rows
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._one_reads = threading.Lock()

    def table(self, window: Window) -> pa.Table | None:
        """Return the rows of a window in order of time, or None if there are too many for the
        cache."""
        first, end = window.from_unix_ns // CHUNK_NS, -(-window.to_unix_ns // CHUNK_NS)
        if end - first > _MAX_CHUNKS or end + self._reach > _LAST:
            return None
        # Read the stamps before the rows. If rows arrive between the two reads, the stamps no
        # longer match, and the next query reads the chunk again.
        stamps = self._stamps(first - self._reach, end + self._reach)
        wanted = [place for place in range(first, end) if stamps[place].rows]
        if sum(stamps[place].rows for place in wanted) > self._max_rows:
            return None
        found = self._valid(wanted, stamps)
        if len(found) < len(wanted):
            with self._one_reads:  # a second thread waits, and then finds the chunks in the cache
                found = self._valid(wanted, stamps)
                for run in _runs([place for place in wanted if place not in found], stamps):
                    found |= self._fetched(run, stamps)
                self._keep(found)
        else:
            self._keep(found)
        if not found:
            return self._read(Window(window.from_unix_ns, window.from_unix_ns))
        parts = [_rows_in_window(found[place].table, self._instant.key, window) for place in wanted]
        return pa.concat_tables(parts).unify_dictionaries()

    @property
    def rows(self) -> int:
        """Number of cached rows."""
        with self._lock:
            return sum(each.table.num_rows for each in self._kept.values())

    def _valid(self, wanted: Sequence[int], stamps: Mapping[int, _Stamp]) -> dict[int, _Kept]:
        with self._lock:
            kept = {place: self._kept[place] for place in wanted if place in self._kept}
        return {
            place: each
            for place, each in kept.items()
            if each.stamps == _stamps_around(place, len(each.stamps) // 2, stamps)
        }

    def _fetched(self, run: Sequence[int], stamps: Mapping[int, _Stamp]) -> dict[int, _Kept]:
        edges = [place * CHUNK_NS for place in (*run, run[-1] + 1)]
        table = self._read(Window(edges[0], edges[-1]))
        cuts = np.searchsorted(table[self._instant.key].to_numpy(), edges).tolist()
        found = {}
        for place, (low, high) in zip(run, pairwise(cuts), strict=True):
            part = _copy_rows(table.slice(low, high - low))
            far = self._reach if self._depends is not None and self._depends(part) else 0
            found[place] = _Kept(part, _stamps_around(place, far, stamps))
        return found

    def _keep(self, found: dict[int, _Kept]) -> None:
        with self._lock:
            for place, each in found.items():
                self._kept[place] = each
                self._kept.move_to_end(place)
            rows = sum(each.table.num_rows for each in self._kept.values())
            while rows > self._max_rows:
                _, oldest = self._kept.popitem(last=False)
                rows -= oldest.table.num_rows

    def _stamps(self, first: int, end: int) -> dict[int, _Stamp]:
        found: list[_Stamp] = []
        with reading(self._engine) as connection:
            for start in range(first, end, _ASKED_AT_ONCE):
                edges = {
                    f"edge_{each}": min(start + each, end) * CHUNK_NS
                    for each in range(_ASKED_AT_ONCE + 1)
                }
                rows = sorted(connection.execute(self._question, edges).all())
                found += [_Stamp(int(number), int(rest)) for _, number, rest in rows]
        return dict(zip(range(first, end), found, strict=False))

    @cached_property
    def _question(self) -> CompoundSelect[Any]:
        edges = [bindparam(f"edge_{each}", type_=BigInteger) for each in range(_ASKED_AT_ONCE + 1)]
        rest = func.coalesce(func.sum(self._instant % _PRIME), 0)
        return union_all(
            *(
                select(literal(place), func.count(), rest).where(
                    self._instant >= start, self._instant < end
                )
                for place, (start, end) in enumerate(pairwise(edges))
            )
        )


def _stamps_around(place: int, far: int, stamps: Mapping[int, _Stamp]) -> tuple[_Stamp, ...]:
    return tuple(stamps[each] for each in range(place - far, place + far + 1))


def _runs(places: Sequence[int], stamps: Mapping[int, _Stamp]) -> list[list[int]]:
    runs: list[list[int]] = []
    rows = 0
    for place in places:
        rows += stamps[place].rows
        if not runs or place != runs[-1][-1] + 1 or rows > _READ_AT_ONCE:
            runs.append([])
            rows = stamps[place].rows
        runs[-1].append(place)
    return runs


def _rows_in_window(table: pa.Table, instant: str, window: Window) -> pa.Table:
    low, high = np.searchsorted(
        table[instant].to_numpy(), [window.from_unix_ns, window.to_unix_ns]
    ).tolist()
    return table.slice(low, high - low)


def _copy_rows(table: pa.Table) -> pa.Table:
    """Copy a slice. Without the copy, the slice would keep the whole table in memory."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
