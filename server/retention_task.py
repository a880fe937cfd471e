"""Compute rollups and delete old data while Tailspan runs."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import click
from sqlalchemy import Engine

from store.alerting.incident_answers import delete_old_answers
from store.alerting.notifications import delete_old_notifications
from store.errors import LeaseLost
from store.leases import RETENTION, Leases
from store.predictions import delete_old_predictions
from store.replicas.engine_starts import delete_starts
from store.retention import (
    KEEP_HOURS_NS,
    KEEP_MINUTES_NS,
    KEEP_ROWS_NS,
    delete_older,
    delete_older_rollups,
    deleted_until_unix_ns,
    keep_rows_for_ever,
    newest_unix_ns,
    store_deleted_until,
)
from store.rollups.bucket_builder import Failed, build_some_marked
from telemetry import time_text
from telemetry.corroborated_time import CorroboratedClock
from telemetry.store_errors import StoreError

_log = logging.getLogger(__name__)

EVERY_S = 60.0

KEEP_RESOLVED_S = 90 * 86_400
"""Retention of predictions and of notifications about resolved incidents."""

AT_ONCE = 20

PROGRESS_EVERY = 1_000


SETTLE_S = 600.0
"""Time limit for the rollups of one run. After this time, the run deletes old data. The next run
continues with the rollups."""


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """The retention of each kind of data. Data whose retention is None is kept indefinitely.

    Rollups are kept at least as long as rows. A late row changes the rollups of its minute and of
    its hour, and the rollup of an hour can only be computed while the rollups of all its minutes
    exist.
    """

    rows_ns: int | None = KEEP_ROWS_NS
    minutes_ns: int | None = KEEP_MINUTES_NS
    hours_ns: int | None = KEEP_HOURS_NS

    def __post_init__(self) -> None:
        """Raise the retention of rollups to the retention of rows."""
        for name in ("minutes_ns", "hours_ns"):
            both = self.rows_ns, getattr(self, name)
            object.__setattr__(self, name, None if None in both else max(both))


def begin(engine: Engine, clock: CorroboratedClock) -> None:
    """Compare the clock with the stored data, before any deletion.

    Raises:
        StoreUnavailable: the database does not respond.
    """
    clock.begin(newest_unix_ns(engine), deleted_until_unix_ns(engine))


class RetentionTask:
    """Computes rollups and deletes old data, if this process holds the lease on retention.

    The age of data is measured at `clock.deletable_unix_ns`. Data whose age exceeds its retention
    is deleted.
    """

    def __init__(
        self, engine: Engine, keep: RetentionPeriods, clock: CorroboratedClock, leases: Leases
    ) -> None:
        self._engine = engine
        self._leases = leases
        self._keep = keep
        self._clock = clock
        self._announced = False
        self._begun = False

    async def step(self) -> None:
        """Run once. May raise StoreError. Completed work is kept."""
        if not self._begun:
            # The evaluator must count the stored requests before they are deleted.
            self._begun = True
            await asyncio.sleep(EVERY_S)
        with self._leases.acting(RETENTION) as term:
            if term is None:
                return
            try:
                forgotten = await retain(self._engine, self._keep, self._clock)
            except LeaseLost as error:
                _log.info("retention was abandoned: %s", error)
                return
        if forgotten and not self._announced and self._keep.rows_ns is not None:
            self._announced = True
            _print_line(
                f"Rows older than {time_text.length(self._keep.rows_ns)} are removed (--keep-rows)."
            )


def _print_line(text: str) -> None:
    with suppress(OSError):  # the terminal was closed
        click.echo(text)


async def retain(engine: Engine, keep: RetentionPeriods, clock: CorroboratedClock) -> int:
    """Compute the rollups that are out of date, then delete data older than `keep`.

    Returns:
        The number of deleted requests and samples.

    Raises:
        StoreUnavailable: the database cannot be used. Completed work is kept.
        Exception: the first other error, after all deletions.
    """
    failure = await _compute_marked(engine, clock() // 10**9)
    failures = [] if failure is None else [failure]
    now = clock.deletable_unix_ns
    forgotten = 0
    if keep.rows_ns is None:
        with _raised_later(failures):
            await asyncio.to_thread(keep_rows_for_ever, engine)
    else:
        with _raised_later(failures):
            forgotten = await asyncio.to_thread(delete_older, engine, keep.rows_ns, now)
    await asyncio.to_thread(delete_starts, engine, keep.rows_ns, keep.hours_ns, now)
    with _raised_later(failures):
        await asyncio.to_thread(delete_older_rollups, engine, keep.minutes_ns, keep.hours_ns, now)
    await asyncio.to_thread(delete_old_notifications, engine, now // 10**9 - KEEP_RESOLVED_S)
    if keep.hours_ns is not None:
        # Keep the answer longer than the requests, because it cannot be computed again without
        # them.
        await asyncio.to_thread(delete_old_answers, engine, (now - keep.hours_ns) // 10**9)
    await asyncio.to_thread(delete_old_predictions, engine, now - KEEP_RESOLVED_S * 10**9)
    await asyncio.to_thread(store_deleted_until, engine, now)
    if failures:
        raise failures[0]
    return forgotten


@contextmanager
def _raised_later(failures: list[Exception]) -> Iterator[None]:
    """Collect unexpected errors, so that the next deletions still run."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        failures.append(error)


async def _compute_marked(engine: Engine, now_s: int) -> Exception | None:
    """Compute the rollups that are out of date.

    The first error is returned and not raised, so that old data is still deleted. A few rollups are
    computed at a time, so that Tailspan can stop between them.
    """
    made, progress_at = 0, PROGRESS_EVERY
    failed: Failed = set()
    defect: Exception | None = None
    deadline_s = time.monotonic() + SETTLE_S
    while True:
        try:
            done = await asyncio.to_thread(build_some_marked, engine, now_s, AT_ONCE, failed)
        except LeaseLost:
            raise
        except Exception as error:
            return error
        made += done.built
        defect = defect or done.defect
        if made >= progress_at:
            progress_at += PROGRESS_EVERY
            _print_line(
                f"Computing rollups of stored data: {made:,} minutes done, {done.remaining:,} left."
            )
        if not done.remaining or time.monotonic() > deadline_s:
            return defect
