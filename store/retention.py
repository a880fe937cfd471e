"""Delete old rows.

Rows are deleted in small batches with pauses in between, so that a writer waits for at most one
batch. ClickHouse deletes old rows itself. PostgreSQL drops partitions of whole days. Before rows
are deleted, their rollups are built. If a rollup cannot be built, its rows are kept longer, but
only for a limited time. They are then deleted with a warning. Incidents and the counts of each
objective are never deleted.

The system clock can jump, so deletion uses the corroborated time (`telemetry.corroborated_time`).
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Column, Engine, Table, and_, func, select

from store import dialects
from store.clock_corrections import CORRECTIONS
from store.connections import reading, writing
from store.rollups.bucket_builder import LAG_S, Failed, build_some_marked
from store.rollups.marks import (
    REQUEST_ROLLUPS,
    SAMPLE_ROLLUPS,
    SECOND_NS,
    RollupSource,
    no_longer_whole,
    pending,
    whole_from_unix_s,
)
from store.rollups.names import ALIVE_S
from store.rollups.sample_tables import KINDS
from store.rollups.tables import BINS, DAY_S, HOUR_S, LABEL_SETS, MINUTE_S, ROLLUPS, STATE
from store.schema import (
    COLD_STARTS,
    GPUS,
    IN_FLIGHT,
    LOOKUPS,
    OPERATIONS,
    PROBES,
    REQUESTS,
    SAMPLES,
)
from store.sender_clocks import SENDERS

KEEP_ROWS_NS: Final = 7 * 86_400 * 10**9
"""Default retention of requests, engine samples and GPU samples."""
KEEP_MINUTES_NS: Final = 90 * 86_400 * 10**9
KEEP_HOURS_NS: Final = 400 * 86_400 * 10**9
"""Default retention of per-minute rollups, and of hourly rollups."""

OVERDUE_SHARE: Final = 7
"""If a rollup is missing, its source data is kept longer, by at most this share of the retention: a
seventh. For rows, this is a day by default."""
ROLL_UP_S: Final = 60.0
_BUCKETS_AT_ONCE: Final = 20

BATCH_ROWS: Final = 2_000
PAUSE_S: Final = 0.02
_HOURS_AT_ONCE: Final = 6
_DELETED: Final = 0
"""Value of `width_s` in the row of `STATE` that stores the time of the last deletion."""

_ROLLED: Final = {REQUESTS: REQUEST_ROLLUPS, SAMPLES: SAMPLE_ROLLUPS, GPUS: SAMPLE_ROLLUPS}
_KEPT: Final[dict[RollupSource, Sequence[Sequence[Table]]]] = {
    REQUEST_ROLLUPS: [(ROLLUPS, BINS)],
    SAMPLE_ROLLUPS: [(kind.rollups,) for kind in KINDS],
}
"""Groups of rollup tables. The tables of a group have the same buckets."""
_KINDS: Final = {REQUEST_ROLLUPS: "requests", SAMPLE_ROLLUPS: "samples"}

_log = logging.getLogger(__name__)

_BY: Final[tuple[tuple[Table, Column[int]], ...]] = (
    (REQUESTS, REQUESTS.c.received_unix_ns),
    (SAMPLES, SAMPLES.c.at_unix_ns),
    (GPUS, GPUS.c.at_unix_ns),
    (PROBES, PROBES.c.at_unix_ns),
    (OPERATIONS, OPERATIONS.c.at_unix_ns),
    (LOOKUPS, LOOKUPS.c.at_unix_ns),
    (COLD_STARTS, COLD_STARTS.c.at_unix_ns),
    (IN_FLIGHT, IN_FLIGHT.c.seen_unix_ns),
)
_CORRECTIONS: Final[tuple[tuple[Table, Column[int]], ...]] = (
    (CORRECTIONS, CORRECTIONS.c.sent_unix_ns),
    (SENDERS, SENDERS.c.at_unix_ns),
)
"""The tables with corrections of clocks. `newest_unix_ns` ignores these tables, because their
timestamps can be in the future."""


def newest_unix_ns(engine: Engine) -> int | None:
    """The newest timestamp of all stored rows, or None."""
    with reading(engine) as connection:
        newest = [connection.scalar(select(func.max(instant))) for _, instant in _BY]
    return max((each for each in newest if each), default=None)


def deleted_until_unix_ns(engine: Engine) -> int | None:
    """The time of the last deletion, or None."""
    statement = select(STATE.c.whole_from_unix_s).where(STATE.c.width_s == _DELETED)
    with reading(engine) as connection:
        found: int | None = connection.scalar(statement)
    return None if found is None else found * SECOND_NS


def store_deleted_until(engine: Engine, now_unix_ns: int) -> None:
    """Store the time of a deletion."""
    row = {"width_s": _DELETED, "whole_from_unix_s": now_unix_ns // SECOND_NS}
    with writing(engine) as connection:
        dialects.of(engine).upsert(connection, STATE, [row])


def delete_older(
    engine: Engine,
    keep_ns: int,
    now_unix_ns: int,
    *,
    batch_rows: int = BATCH_ROWS,
    pause: Callable[[], None] = lambda: time.sleep(PAUSE_S),
) -> int:
    """Delete the rows that are older than their retention.

    Args:
        batch_rows: rows per transaction. If several rows have the same time as the last row, the
            batch is larger.
        pause: called after each batch, outside a transaction.

    Returns: the number of deleted rows. For days that PostgreSQL drops, the number is an estimate.
    If the database deletes old rows itself, the number is 0.

    Raises:
        StoreUnavailable: the database cannot be written. Earlier batches stay deleted.
        Exception: a rollup could not be built. The exception is raised after the deletion.
    """
    before_ns = now_unix_ns - keep_ns
    failure = _roll_up(engine, before_ns // SECOND_NS + MINUTE_S)
    # ClickHouse deletes rows by age, even if their rollups are missing.
    overdue_ns = 0 if dialects.of(engine).ADDITIVE else keep_ns // OVERDUE_SHARE
    until_ns = {}
    for rolled in _KINDS:
        until_ns[rolled] = SECOND_NS * _deletable_until_s(
            engine, rolled, (MINUTE_S,), before_ns // SECOND_NS, overdue_ns // SECOND_NS
        )
        no_longer_whole(engine, MINUTE_S, until_ns[rolled] // SECOND_NS, rolled)
    forgotten = 0
    for table, instant in (*_BY, *_CORRECTIONS):
        with writing(engine) as connection:
            if dialects.of(engine).set_row_lifetime(connection, table, instant.name, keep_ns):
                continue
        rolled_up = _ROLLED.get(table)
        delete_before_ns = before_ns if rolled_up is None else min(before_ns, until_ns[rolled_up])
        if (days := dialects.of(engine).drop_days(engine, table, delete_before_ns)) is not None:
            dropped, divided_from_ns = days
            forgotten += dropped
            # Rows of the oldest day are kept until the whole day can be dropped.
            if keep_ns >= OVERDUE_SHARE * DAY_S * SECOND_NS:
                delete_before_ns = min(delete_before_ns, divided_from_ns)
        while removed := _one_batch(engine, table, instant, delete_before_ns, batch_rows):
            forgotten += removed
            pause()
    if failure is not None:
        raise failure
    return forgotten


def keep_rows_for_ever(engine: Engine) -> None:
    """Cancel an earlier retention of rows, if the database deletes old rows itself."""
    for table, instant in (*_BY, *_CORRECTIONS):
        with writing(engine) as connection:
            if not dialects.of(engine).set_row_lifetime(connection, table, instant.name, None):
                return


def delete_older_rollups(
    engine: Engine, keep_minutes_ns: int | None, keep_hours_ns: int | None, now_unix_ns: int
) -> None:
    """Delete the rollups that are older than their retention, in whole hours. If the retention is
    None, rollups are kept indefinitely.

    Raises:
        ValueError: the retention of hourly rollups is shorter than the retention of per-minute
            rollups.
        Exception: a rollup could not be built. The exception is raised after the deletion.
    """
    if keep_hours_ns is not None and (keep_minutes_ns is None or keep_minutes_ns > keep_hours_ns):
        raise ValueError(
            "the retention of hourly rollups must be at least the retention of per-minute rollups"
        )
    failure: Exception | None = None
    if keep_minutes_ns is not None:
        before = (now_unix_ns - keep_minutes_ns) // SECOND_NS // HOUR_S * HOUR_S
        overdue_s = keep_minutes_ns // OVERDUE_SHARE // SECOND_NS
        failure = _roll_up(engine, before)
        for rolled, kept in _KEPT.items():
            until_s = _deletable_until_s(engine, rolled, (MINUTE_S, HOUR_S), before, overdue_s)
            until_s = until_s // HOUR_S * HOUR_S
            no_longer_whole(engine, HOUR_S, until_s, rolled)
            for tables in kept:
                _forget_buckets(engine, tables, MINUTE_S, until_s)
    if keep_hours_ns is not None:
        before = (now_unix_ns - keep_hours_ns) // SECOND_NS // HOUR_S * HOUR_S
        no_longer_whole(engine, DAY_S, before, SAMPLE_ROLLUPS)
        for tables in (each for kept in _KEPT.values() for each in kept):
            _forget_buckets(engine, tables, HOUR_S, before)
        with writing(engine) as connection:
            unused = LABEL_SETS.c.newest_unix_s < before - ALIVE_S
            dialects.of(engine).remove(connection, LABEL_SETS, unused)
    if failure is not None:
        raise failure


def _roll_up(engine: Engine, until_unix_s: int) -> Exception | None:
    """Build the buckets that end before a time. Return the first error."""
    deadline_s = time.monotonic() + ROLL_UP_S
    failed: Failed = set()
    defect: Exception | None = None
    try:
        while True:
            done = build_some_marked(engine, until_unix_s + LAG_S, _BUCKETS_AT_ONCE, failed)
            defect = defect or done.defect
            if not done.remaining or time.monotonic() > deadline_s:
                return defect
    except Exception as error:
        return error


def _deletable_until_s(
    engine: Engine, rolled: RollupSource, widths_s: Sequence[int], before_s: int, overdue_s: int
) -> int:
    """The time before which data can be deleted. A missing rollup delays a deletion by at most
    `overdue_s`."""
    missing = set()
    for width_s in widths_s:
        whole_s = whole_from_unix_s(engine, width_s, rolled) or 0
        missing.update(pending(engine, width_s, whole_s, before_s, rolled))
    if not missing:
        return before_s
    until_s = max(min(missing), before_s - overdue_s)
    if lost := sorted(each for each in missing if each < until_s):
        _log.warning(
            "the rollups of %d %s of %s, from unix time %d to %d, could not be built in time; the"
            " data is deleted without them",
            *(len(lost), "minutes" if widths_s == (MINUTE_S,) else "minutes and hours"),
            *(_KINDS[rolled], lost[0], lost[-1]),
        )
    return until_s


def _forget_buckets(
    engine: Engine, tables: Sequence[Table], width_s: int, before_unix_s: int
) -> None:
    while (oldest := _oldest(engine, tables[0], width_s)) is not None and oldest < before_unix_s:
        until = min(before_unix_s, oldest + _HOURS_AT_ONCE * HOUR_S)
        with writing(engine) as connection:
            for table in tables:
                which = and_(table.c.width_s == width_s, table.c.from_unix_s < until)
                dialects.of(engine).remove(connection, table, which)


def _oldest(engine: Engine, table: Table, width_s: int) -> int | None:
    oldest = select(func.min(table.c.from_unix_s)).where(table.c.width_s == width_s)
    if "grouping" in table.c:
        oldest = oldest.where(table.c.grouping == 0)
    with reading(engine) as connection:
        found: int | None = connection.scalar(oldest)
    return found


def _one_batch(
    engine: Engine, table: Table, instant: Column[int], before_unix_ns: int, rows: int
) -> int:
    oldest = select(instant).where(instant < before_unix_ns).order_by(instant).limit(rows)
    with reading(engine) as connection:
        instants = connection.scalars(oldest).all()
    if not instants:
        return 0
    with writing(engine) as connection:
        return dialects.of(engine).remove(connection, table, instant <= instants[-1])
