"""Delete old rows.

Rows are deleted in small batches. Each batch is a separate transaction, with a pause after it, so
that a writer waits for one batch at most. ClickHouse is configured to delete old rows itself.
Before rows are deleted, their rollups are built; rollups have a longer retention. Counts per
objective and incidents are few, so they are never deleted.

Deletion cannot be undone, so it uses the corroborated time instead of the system clock
(`telemetry.corroborated_time`). The time of the last deletion is stored for the next start.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Column, Engine, Table, and_, func, select

from store import dialects
from store.connections import reading, writing
from store.rollups.building import LAG_S, settle
from store.rollups.label_sets import ALIVE_S
from store.rollups.marks import REQUESTED, SAMPLED, SECOND_NS, no_longer_whole
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

KEEP_ROWS_NS: Final = 7 * 86_400 * 10**9
"""Default retention of requests, engine samples and GPU samples."""
KEEP_MINUTES_NS: Final = 90 * 86_400 * 10**9
KEEP_HOURS_NS: Final = 400 * 86_400 * 10**9
"""Default retention of rollups per minute, and of rollups per hour."""

BATCH_ROWS: Final = 2_000
PAUSE_S: Final = 0.02
_HOURS_AT_ONCE: Final = 6
_DELETED: Final = 0
"""`width_s` of the row in `STATE` that stores the time of the last deletion. No bucket has this
width.
"""

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


def newest_unix_ns(engine: Engine) -> int | None:
    """Return the newest timestamp of all stored rows, or None if there are no rows."""
    with reading(engine) as connection:
        newest = [connection.scalar(select(func.max(instant))) for _, instant in _BY]
    return max((each for each in newest if each), default=None)


def deleted_until_unix_ns(engine: Engine) -> int | None:
    """Return the time of the last deletion, or None if no row was deleted yet."""
    statement = select(STATE.c.whole_from_unix_s).where(STATE.c.width_s == _DELETED)
    with reading(engine) as connection:
        found: int | None = connection.scalar(statement)
    return None if found is None else found * SECOND_NS


def keep_deleted_until(engine: Engine, now_unix_ns: int) -> None:
    """Store the time of a deletion."""
    row = {"width_s": _DELETED, "whole_from_unix_s": now_unix_ns // SECOND_NS}
    with writing(engine) as connection:
        dialects.of(engine).put(connection, STATE, [row])


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
        engine: from `open_database`.
        keep_ns: the retention of rows.
        now_unix_ns: the current time.
        batch_rows: rows per transaction. Rows with the same time are deleted together, so a batch
            can be larger.
        pause: called after each batch, while no transaction is open.

    Returns: the number of deleted rows, or 0 if the database deletes old rows itself.

    Raises: StoreUnavailable: the database cannot be written. Earlier batches stay deleted.
    """
    _roll_up(engine, (now_unix_ns - keep_ns) // SECOND_NS)
    forgotten = 0
    for table, instant in _BY:
        with writing(engine) as connection:
            if dialects.of(engine).forgets(connection, table, instant.name, keep_ns):
                continue
        while removed := _one_batch(engine, table, instant, now_unix_ns - keep_ns, batch_rows):
            forgotten += removed
            pause()
    return forgotten


def delete_older_rollups(
    engine: Engine, keep_minutes_ns: int | None, keep_hours_ns: int | None, now_unix_ns: int
) -> None:
    """Delete the rollups that are older than their retention.

    A retention of None keeps rollups for ever. Rollups per minute are deleted in whole hours, once
    the rollups of these hours exist.

    Raises:
        StoreUnavailable: the database cannot be written.
        ValueError: the retention of rollups per hour is shorter than the retention of rollups per
            minute.
    """
    if keep_hours_ns is not None and (keep_minutes_ns is None or keep_minutes_ns > keep_hours_ns):
        raise ValueError(
            "the retention of rollups per hour must be at least the retention of rollups per minute"
        )
    for width_s, keep_ns in ((MINUTE_S, keep_minutes_ns), (HOUR_S, keep_hours_ns)):
        if keep_ns is None:
            continue
        before = (now_unix_ns - keep_ns) // SECOND_NS // HOUR_S * HOUR_S
        if width_s == MINUTE_S:
            settle(engine, before + LAG_S)
            for rolled in (REQUESTED, SAMPLED):
                no_longer_whole(engine, HOUR_S, before, rolled)
        else:
            no_longer_whole(engine, DAY_S, before, SAMPLED)
        for tables in ((ROLLUPS, BINS), *((kind.kept,) for kind in KINDS)):
            _forget_buckets(engine, tables, width_s, before)
        if width_s == HOUR_S:
            with writing(engine) as connection:
                unused = LABEL_SETS.c.newest_unix_s < before - ALIVE_S
                dialects.of(engine).remove(connection, LABEL_SETS, unused)


def _roll_up(engine: Engine, before_unix_s: int) -> None:
    """Build the rollups of rows before the rows are deleted, and record that these rollups are
    final.
    """
    settle(engine, before_unix_s + MINUTE_S + LAG_S)
    for rolled in (REQUESTED, SAMPLED):
        no_longer_whole(engine, MINUTE_S, before_unix_s, rolled)


def _forget_buckets(
    engine: Engine, tables: Sequence[Table], width_s: int, before_unix_s: int
) -> None:
    """Delete the buckets that begin before a time, from all tables.

    The first table determines which buckets exist.
    """
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
