"""Builds the marked buckets: minutes from rows, hours from minutes.

A bucket is always built as a whole from the existing data, and replaces the previous one. Stored
numbers are never incremented. So a repeated row counts once, a late row causes its minute to be
built again, and an interrupted run can be repeated.

If two processes build the same bucket, only one result is stored: a process discards its result if
one of the marks that it read is gone. ClickHouse has no transactions; there, only one process may
build at a time.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine

from store.connections import writing
from store.rollups.marks import Rolled, begin, mark, marked, unmark, whole_from_unix_s
from store.rollups.request_rollups import RequestRollups
from store.rollups.sample_rollups import SampleRollups
from store.rollups.tables import HOUR_S, MINUTE_S, WIDTHS_S

LAG_S: Final = 60
"""Seconds to wait after a bucket's end for late rows."""


class _Overtaken(Exception):  # noqa: N818 -- it names the condition
    """Another process has built the bucket meanwhile."""


class Maker(Protocol):
    """Builds the buckets of one kind of rows."""

    of: Rolled

    def made(self, width_s: int, start_unix_s: int) -> Any:
        """Build a bucket from the existing data."""

    def keep(self, connection: Connection, width_s: int, start_unix_s: int, made: Any) -> None:
        """Store a bucket, and replace the previous one, in the caller's transaction."""

    def kept(self) -> None:
        """Called after the bucket was committed."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The number of buckets that were built, and of ended buckets that are not built yet."""

    made: int
    left: int


def settle(engine: Engine, now_unix_s: int, most: int | None = None) -> Settled:
    """Build the marked buckets that have ended, the oldest first, minutes before hours.

    Args:
        engine: from `open_database`. In the first run, all existing minutes are marked.
        now_unix_s: the current time.
        most: the maximum number of buckets to build, so that a caller can stop in between.

    Raises:
        StoreUnavailable: the database does not answer; finished buckets stay stored.
    """
    begin(engine)
    made = left = 0
    makers: tuple[Maker, ...] = (RequestRollups(engine), SampleRollups(engine))
    for maker in makers:
        for width_s in WIDTHS_S:
            whole_from = whole_from_unix_s(engine, width_s, maker.of) or 0
            for start, marks in marked(engine, width_s, maker.of).items():
                if start + width_s + LAG_S > now_unix_s:
                    continue
                if most is not None and made >= most:
                    left += 1
                    continue
                _make(engine, maker, width_s, start, marks, whole=start >= whole_from)
                made += 1
    return Settled(made, left)


def _make(
    engine: Engine, maker: Maker, width_s: int, start: int, marks: list[int], *, whole: bool
) -> None:
    bucket = maker.made(width_s, start) if whole else None
    try:
        with writing(engine) as connection:
            if whole:
                maker.keep(connection, width_s, start, bucket)
                if width_s == MINUTE_S:
                    mark(connection, HOUR_S, [start // HOUR_S * HOUR_S], maker.of)
            if unmark(connection, width_s, start, marks, maker.of) != len(marks):
                raise _Overtaken
    except _Overtaken:
        return
    maker.kept()
