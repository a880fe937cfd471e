"""Decides which parts of a time range are read from hours, from minutes, and from rows.

Whole hours if the question needs no shorter steps, minutes for the rest, and rows for the marked
minutes. Where minutes were deleted only hours remain, and the range is widened to them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Engine, func, select

from store.connections import reading
from store.queries import Window
from store.rollups.marks import SECOND_NS, pending, whole_from_unix_s
from store.rollups.tables import HOUR_S, MINUTE_S, ROLLUPS
from telemetry.sketches import IntArray

Stretch = tuple[int, int]
"""From, to: unix seconds, half open."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read: hours and minutes by their starts, requests by when they were received."""

    from_unix_s: int
    to_unix_s: int
    hours: list[Stretch]
    minutes: list[Stretch]
    requests: list[Stretch]

    @property
    def window(self) -> Window:
        """The window of the answer: the one requested, widened to whole buckets."""
        return Window(self.from_unix_s * SECOND_NS, self.to_unix_s * SECOND_NS)


def plan(engine: Engine, window: Window, step_s: int | None = None) -> Plan | None:
    """How to answer from rollups.

    Args:
        engine: from `open_database`.
        window: asked about.
        step_s: the length of the answer's steps; None for the whole window as one.

    Returns: None where the database has no rollups yet.
    """
    rows_from, minutes_from = (whole_from_unix_s(engine, each) for each in (MINUTE_S, HOUR_S))
    if rows_from is None or minutes_from is None:
        return None
    start = down(window.from_unix_ns // SECOND_NS, MINUTE_S)
    end = up(-(-window.to_unix_ns // SECOND_NS), MINUTE_S)
    if start < minutes_from:
        start = down(start, HOUR_S)
    if end < minutes_from:
        end = up(end, HOUR_S)
    marked = np.array(pending(engine, MINUTE_S, max(start, rows_from), end), np.int64)
    unmade = np.array(pending(engine, HOUR_S, max(start, minutes_from), end), np.int64)
    # Of "ever" only where there is something: there are half a million minutes in a year.
    first, last = _extent(engine, start, end)
    hours = np.arange(up(first, HOUR_S), down(last, HOUR_S), HOUR_S)
    hours = np.setdiff1d(hours, np.concatenate([unmade, marked // HOUR_S * HOUR_S]))
    if step_s is not None and step_s % HOUR_S:
        hours = hours[hours < minutes_from]
    minutes = np.arange(first, last, MINUTE_S)
    minutes = minutes[~np.isin(minutes // HOUR_S * HOUR_S, hours)]
    minutes = np.setdiff1d(minutes, marked)
    return Plan(
        start,
        end,
        neighbours(hours, HOUR_S),
        neighbours(minutes, MINUTE_S),
        neighbours(marked, MINUTE_S),
    )


def _extent(engine: Engine, from_unix_s: int, to_unix_s: int) -> Stretch:
    """The part of a stretch that there are rollups of, to whole hours of it."""
    starts = []
    with reading(engine) as connection:
        for width_s in (MINUTE_S, HOUR_S):
            for extreme in (func.min, func.max):
                found: int | None = connection.scalar(
                    select(extreme(ROLLUPS.c.from_unix_s)).where(
                        ROLLUPS.c.grouping == 0, ROLLUPS.c.width_s == width_s
                    )
                )
                starts.extend([] if found is None else [found])
    if not starts:
        return from_unix_s, from_unix_s
    first = max(from_unix_s, down(min(starts), HOUR_S))
    return first, max(first, min(to_unix_s, down(max(starts), HOUR_S) + HOUR_S))


def neighbours(starts: IntArray, width_s: int) -> list[Stretch]:
    """Buckets by their starts, in order: those that adjoin as one."""
    if starts.size == 0:
        return []
    breaks = np.flatnonzero(np.diff(starts) != width_s)
    firsts: Iterable[int] = starts[np.concatenate([[0], breaks + 1])].tolist()
    lasts: Iterable[int] = starts[np.concatenate([breaks, [-1]])].tolist()
    return [(first, last + width_s) for first, last in zip(firsts, lasts, strict=True)]


def down(unix_s: int, width_s: int) -> int:
    """To the start of its bucket."""
    return unix_s // width_s * width_s


def up(unix_s: int, width_s: int) -> int:
    """To the first bucket that starts no earlier."""
    return -(-unix_s // width_s) * width_s
