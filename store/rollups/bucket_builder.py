"""Build the rollups of marked buckets: minutes from rows, and hours from minutes.

A mark (`marks.py`) records that new rows arrived for a bucket. A bucket is always built as a whole
and replaces the stored bucket, so a repeated row counts once. If two processes build the same
bucket, the second process finds the marks removed and discards its result. In ClickHouse, which has
no transactions, the second process marks the bucket again.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine

from store import dialects
from store.connections import writing
from store.errors import LeaseLost
from store.rollups.marks import RollupSource, begin, mark, marked, unmark, whole_from_unix_s
from store.rollups.request_rollups import RequestRollups
from store.rollups.sample_rollups import SampleRollups
from store.rollups.tables import HOUR_S, MINUTE_S, WIDTHS_S
from telemetry.store_errors import StoreError

LAG_S: Final = 60
"""Time to wait for late rows after the end of a bucket."""


class _AlreadyBuilt(Exception):  # noqa: N818 -- the name states the condition
    pass


class RollupBuilder(Protocol):
    """Builds the buckets of one kind of rows."""

    of: RollupSource

    def build(self, width_s: int, start_unix_s: int) -> Any:
        """Build a bucket from the existing data."""

    def store(self, connection: Connection, width_s: int, start_unix_s: int, built: Any) -> None:
        """Replace a stored bucket in the caller's transaction."""

    def committed(self) -> None:
        """Update this object, after the bucket was committed."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The numbers of built and remaining buckets. Buckets that cannot be built are not counted.
    `defect` is the first error of a bucket that cannot be built, or None."""

    built: int
    remaining: int
    defect: Exception | None = None


Failed = set[tuple[RollupSource, int, int]]
"""The kind of rows, width in seconds, and start in unix seconds of each failed bucket."""


def build_marked(engine: Engine, now_unix_s: int, most: int | None = None) -> BuildResult:
    """Build all marked buckets that have ended. See `build_some_marked`.

    Raises:
        Exception: the first error of a bucket, raised after the other buckets were built.
    """
    done = build_some_marked(engine, now_unix_s, most, set())
    if done.defect is not None:
        raise done.defect
    return done


def build_some_marked(
    engine: Engine, now_unix_s: int, most: int | None, failed: Failed
) -> BuildResult:
    """Build marked buckets that have ended, the oldest first, and minutes before hours.

    Args:
        engine: if this database has no rollups yet, the minutes of all its rows are marked first.
        most: maximum number of buckets, or None for no limit.
        failed: buckets to leave out. If a bucket fails now, it is added, and the other buckets are
            still built.
    """
    begin(engine)
    built = remaining = 0
    defect: Exception | None = None
    builders: tuple[RollupBuilder, ...] = (RequestRollups(engine), SampleRollups(engine))
    for builder in builders:
        for width_s in WIDTHS_S:
            whole_from = whole_from_unix_s(engine, width_s, builder.of) or 0
            for start, marks in marked(engine, width_s, builder.of).items():
                key = builder.of, width_s, start
                if start + width_s + LAG_S > now_unix_s or key in failed:
                    continue
                if most is not None and built >= most:
                    remaining += 1
                    continue
                try:
                    _build(engine, builder, width_s, start, marks, whole=start >= whole_from)
                except StoreError:
                    raise
                except Exception as error:
                    defect = defect or error
                    failed.add(key)
                else:
                    built += 1
    return BuildResult(built, remaining, defect)


def _build(
    engine: Engine,
    builder: RollupBuilder,
    width_s: int,
    start: int,
    marks: list[int],
    *,
    whole: bool,
) -> None:
    bucket = builder.build(width_s, start) if whole else None
    try:
        with writing(engine) as connection:
            if whole:
                builder.store(connection, width_s, start, bucket)
                if width_s == MINUTE_S:
                    mark(connection, HOUR_S, [start // HOUR_S * HOUR_S], builder.of)
            if unmark(connection, width_s, start, marks, builder.of) != len(marks):
                raise _AlreadyBuilt
    except (_AlreadyBuilt, LeaseLost) as error:
        if dialects.of(engine).ADDITIVE and whole:
            with writing(engine, fenced=False) as connection:
                mark(connection, width_s, [start], builder.of)
        if isinstance(error, LeaseLost):
            raise
        return
    builder.committed()
