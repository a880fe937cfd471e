"""Decide which parts of a time range are read from hourly rollups, per-minute rollups, or rows.

Whole hours are read from hourly rollups, unless the query has shorter steps. Other minutes are
read from per-minute rollups. If new rows arrived after a minute's rollup was built, its rows are
read. If the per-minute rollups were deleted, the range is widened to whole hours.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Engine, func, select

from store.connections import reading
from store.rollups.marks import SECOND_NS, pending, whole_from_unix_s
from store.rollups.tables import HOUR_S, MINUTE_S, ROLLUPS
from telemetry.sketches import IntArray
from telemetry.window import Window

TimeRange = tuple[int, int]
"""A half-open range (from, to) in unix seconds."""


@dataclass(frozen=True, slots=True)
class RollupPlan:
    """The time ranges to read from each source."""

    from_unix_s: int
    to_unix_s: int
    counted: Window
    """The time range by which counts are divided to get rates: `window` without the part of the
    current minute or hour that is still to come."""
    hours: list[TimeRange]
    minutes: list[TimeRange]
    requests: list[TimeRange]

    @property
    def window(self) -> Window:
        """The time range that is read: the requested window, widened to whole buckets."""
        return Window(self.from_unix_s * SECOND_NS, self.to_unix_s * SECOND_NS)


def plan(engine: Engine, window: Window, step_s: int | None = None) -> RollupPlan | None:
    """Plan which data a query of rollups reads. Return None if the database has no rollups yet."""
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
    # A year has half a million minutes, so use only the range with data.
    first, last = _extent(engine, start, end)
    hours = np.arange(up(first, HOUR_S), down(last, HOUR_S), HOUR_S)
    hours = np.setdiff1d(hours, np.concatenate([unmade, marked // HOUR_S * HOUR_S]))
    if step_s is not None and step_s % HOUR_S:
        hours = hours[hours < minutes_from]
    minutes = np.arange(first, last, MINUTE_S)
    minutes = minutes[~np.isin(minutes // HOUR_S * HOUR_S, hours)]
    minutes = np.setdiff1d(minutes, marked)
    return RollupPlan(
        start,
        end,
        Window(start * SECOND_NS, min(end * SECOND_NS, max(window.to_unix_ns, time.time_ns()))),
        neighbours(hours, HOUR_S),
        neighbours(minutes, MINUTE_S),
        neighbours(marked, MINUTE_S),
    )


def _extent(engine: Engine, from_unix_s: int, to_unix_s: int) -> TimeRange:
    """The part of a time range in which rollups exist, in whole hours."""
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


def neighbours(starts: IntArray, width_s: int) -> list[TimeRange]:
    """Join adjacent buckets to time ranges, in order."""
    if starts.size == 0:
        return []
    breaks = np.flatnonzero(np.diff(starts) != width_s)
    firsts: Iterable[int] = starts[np.concatenate([[0], breaks + 1])].tolist()
    lasts: Iterable[int] = starts[np.concatenate([breaks, [-1]])].tolist()
    return [(first, last + width_s) for first, last in zip(firsts, lasts, strict=True)]


def down(unix_s: int, width_s: int) -> int:
    """Round down to the start of a bucket."""
    return unix_s // width_s * width_s


def up(unix_s: int, width_s: int) -> int:
    """Round up to the start of a bucket."""
    return -(-unix_s // width_s) * width_s
