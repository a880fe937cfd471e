"""Rolling requests up, and forgetting what is old, while Tailspan runs."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

import click
from sqlalchemy import Engine

from cli import times
from store.notifications import forget_told
from store.retention import (
    KEEP_HOURS_NS,
    KEEP_MINUTES_NS,
    KEEP_ROWS_NS,
    forget_older,
    forget_older_rollups,
)
from store.settling import settle

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


class Retaining:
    """Rolls up and forgets.

    Args:
        engine: from `open_database`.
        keep: how long.
    """

    def __init__(self, engine: Engine, keep: Keep) -> None:
        self._engine = engine
        self._keep = keep
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
        await self._settle()
        now = time.time_ns()
        forgotten = 0
        if self._keep.rows_ns is not None:
            forgotten = await asyncio.to_thread(forget_older, self._engine, self._keep.rows_ns, now)
        await asyncio.to_thread(
            forget_older_rollups, self._engine, self._keep.minutes_ns, self._keep.hours_ns, now
        )
        await asyncio.to_thread(forget_told, self._engine, now // 10**9 - KEEP_TOLD_S)
        if forgotten and not self._told and self._keep.rows_ns is not None:
            self._told = True
            _say(f"Rows older than {times.length(self._keep.rows_ns)} are removed (--keep-rows).")

    async def _settle(self) -> None:
        """Make what is marked, in slices: who stops waits for one of them at most."""
        made, told_at = 0, TOLD_EVERY
        while True:
            done = await asyncio.to_thread(settle, self._engine, int(time.time()), AT_ONCE)
            made += done.made
            if made >= told_at:
                told_at += TOLD_EVERY
                _say(f"Rolling up what came before: {made:,} minutes done, {done.left:,} to go.")
            if not done.left:
                return


def _say(text: str) -> None:
    with suppress(OSError):  # the terminal is gone
        click.echo(text)
