"""Rolling requests up, and forgetting what is old, while Tailspan runs."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import click
from sqlalchemy import Engine

from store.alerting.notifications import forget_told
from store.replicas.engine_starts import delete_starts
from store.retention import (
    KEEP_HOURS_NS,
    KEEP_MINUTES_NS,
    KEEP_ROWS_NS,
    delete_older,
    delete_older_rollups,
    deleted_until_unix_ns,
    keep_deleted_until,
    newest_unix_ns,
)
from store.rollups.building import settle
from telemetry import time_text
from telemetry.corroborated_time import CorroboratedClock

EVERY_S = 60.0

KEEP_TOLD_S = 90 * 86_400
"""How long it is known what was told of an incident that is over."""

AT_ONCE = 20
"""Rollups made before it is looked whether to stop."""

TOLD_EVERY = 1_000
"""An older database has thousands to make: how often that is told."""


@dataclass(frozen=True, slots=True)
class Keep:
    """How long what is kept; None is for ever."""

    rows_ns: int | None = KEEP_ROWS_NS
    minutes_ns: int | None = KEEP_MINUTES_NS
    hours_ns: int | None = KEEP_HOURS_NS


def begin(engine: Engine, clock: CorroboratedClock) -> None:
    """Tell a clock what is stored, before anything is deleted.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    clock.begin(newest_unix_ns(engine), deleted_until_unix_ns(engine))


class Retaining:
    """Rolls up and forgets.

    Args:
        engine: from `open_database`.
        keep: how long.
        clock: what the present is, and up to when it is safe to delete.
    """

    def __init__(self, engine: Engine, keep: Keep, clock: CorroboratedClock) -> None:
        self._engine = engine
        self._keep = keep
        self._clock = clock
        self._told = False
        self._begun = False

    async def step(self) -> None:
        """Look once.

        Raises:
            StoreError: the database does not answer; what was done is kept.
        """
        if not self._begun:
            # First of all what is there is counted, by who evaluates objectives.
            self._begun = True
            await asyncio.sleep(EVERY_S)
        forgotten = await retain(self._engine, self._keep, self._clock)
        if forgotten and not self._told and self._keep.rows_ns is not None:
            self._told = True
            _say(
                f"Rows older than {time_text.length(self._keep.rows_ns)} are removed (--keep-rows)."
            )


def _say(text: str) -> None:
    with suppress(OSError):  # the terminal is gone
        click.echo(text)


async def retain(engine: Engine, keep: Keep, clock: CorroboratedClock) -> int:
    """Roll up and forget once.

    Returns:
        How many requests and samples were deleted.

    Raises:
        StoreUnavailable: the database cannot be used; what went before is done.
    """
    await _settle(engine, clock() // 10**9)
    now = clock.deletable_unix_ns
    forgotten = 0
    if keep.rows_ns is not None:
        forgotten = await asyncio.to_thread(delete_older, engine, keep.rows_ns, now)
        await asyncio.to_thread(delete_starts, engine, keep.rows_ns, keep.hours_ns, now)
    await asyncio.to_thread(delete_older_rollups, engine, keep.minutes_ns, keep.hours_ns, now)
    await asyncio.to_thread(forget_told, engine, now // 10**9 - KEEP_TOLD_S)
    await asyncio.to_thread(keep_deleted_until, engine, now)
    return forgotten


async def _settle(engine: Engine, now_s: int) -> None:
    """Make what is marked, in slices: who stops waits for one of them at most."""
    made, told_at = 0, TOLD_EVERY
    while True:
        done = await asyncio.to_thread(settle, engine, now_s, AT_ONCE)
        made += done.made
        if made >= told_at:
            told_at += TOLD_EVERY
            _say(f"Rolling up what came before: {made:,} minutes done, {done.left:,} to go.")
        if not done.left:
            return
