"""How long each engine was seen, and how long of that it was busy, hour by hour.

Pure. Between two samples of an engine that are at most GAP_S apart it was there, and its
counts grew evenly. A longer gap is not seen: nobody knows whether a machine was rented then,
so it is neither billed nor idle. What a count had when it was first told is since it started.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from telemetry.accounts import COEFFICIENTS, GAP_S, WORK, EngineStretches, FloatArray, IntArray

HOUR_S: Final = 3_600
_NS: Final = 10**9
_HOUR_NS: Final = HOUR_S * _NS

Engine = tuple[str, int]
"""Replica and number."""


@dataclass(slots=True)
class Hour:
    """One engine in one hour, or in what of it the window has.

    `work` has of each of `telemetry.accounts.WORK` how much it grew; one that nobody told is
    not in it.
    """

    wall_s: float = 0.0
    work: dict[str, float] = field(default_factory=dict)
    coefficients: dict[str, float] = field(default_factory=dict)

    @property
    def busy_s(self) -> float | None:
        """Time in steps; None where nobody told."""
        return self.work.get("busy_s_total")


@dataclass(frozen=True, slots=True)
class Seen:
    """Of each engine its hours, by their start in unix seconds; and where it is."""

    hours: dict[tuple[Engine, int], Hour]
    regions: dict[str, str | None]
    """By replica."""
    gaps_s: float
    """Within the window, between two sightings of an engine that were too far apart."""


def seen(told: EngineStretches, from_unix_ns: int, to_unix_ns: int) -> Seen:
    """What was seen of each engine in a window.

    Args:
        told: with those up to GAP_S before and after the window, so that its edges are seen.
        from_unix_ns: the window's start.
        to_unix_ns: its end.
    """
    hours: dict[tuple[Engine, int], Hour] = {}
    regions: dict[str, str | None] = {}
    whole: dict[Engine, list[_Segments]] = {}
    order = np.lexsort((told.first_unix_ns, told.which))
    first_ns = told.first_unix_ns
    parts = np.split(order, np.flatnonzero(np.diff(told.which[order])) + 1)
    # In order of time, so that of two processes in an hour the later one's fit is noted.
    for rows in sorted((each for each in parts if each.size), key=lambda each: first_ns[each[0]]):
        count = told.counts[int(told.which[rows[0]])]
        engine = (count.replica, count.engine)
        regions[count.replica] = told.regions[int(told.which[rows[0]])]
        segments = _segments(told, rows, count.started_unix_ns)
        whole.setdefault(engine, []).append(segments)
        _note_work(segments, engine, hours, from_unix_ns, to_unix_ns)
        _note_coefficients(told, rows, engine, hours)
    gaps_ns = 0
    for engine, several in whole.items():
        start_ns, end_ns = _joined(
            np.concatenate([each.start_ns for each in several]),
            np.concatenate([each.end_ns for each in several]),
        )
        pieces = _by_hour(start_ns, end_ns, from_unix_ns, to_unix_ns)
        for hour, length_ns in zip(pieces.hour.tolist(), pieces.length_ns.tolist(), strict=True):
            hours.setdefault((engine, hour), Hour()).wall_s += length_ns / _NS
        silent = np.minimum(start_ns[1:], to_unix_ns) - np.maximum(end_ns[:-1], from_unix_ns)
        gaps_ns += int(np.maximum(silent, 0).sum())
    return Seen(hours, regions, gaps_ns / _NS)


class _Segments(NamedTuple):
    """Between two samples of one count, each: from, to, and how much each of WORK grew."""

    start_ns: IntArray
    end_ns: IntArray
    grown: dict[str, FloatArray]


def _segments(told: EngineStretches, rows: IntArray, started_ns: int) -> _Segments:
    """Of one count, its rows in order of time: within each, from one to the next, and from its
    start to its first sample."""
    first_ns, last_ns = told.first_unix_ns[rows], told.last_unix_ns[rows]
    near = np.flatnonzero(first_ns[1:] - last_ns[:-1] <= GAP_S * _NS)
    begun = np.zeros(int(0 <= first_ns[0] - started_ns <= GAP_S * _NS), np.int64)
    grown = {}
    for name in WORK:
        first, last = told.first[name][rows], told.last[name][rows]
        grown[name] = np.concatenate([first[begun], last - first, first[near + 1] - last[near]])
    return _Segments(
        np.concatenate([begun + started_ns, first_ns, last_ns[near]]),
        np.concatenate([first_ns[begun], last_ns, first_ns[near + 1]]),
        grown,
    )


class _Pieces(NamedTuple):
    """Stretches cut at whole hours: of which stretch, in which hour (unix seconds), which share
    of it, how long."""

    which: IntArray
    hour: IntArray
    share: FloatArray
    length_ns: IntArray


def _by_hour(start_ns: IntArray, end_ns: IntArray, from_unix_ns: int, to_unix_ns: int) -> _Pieces:
    """What stretches have of each hour within the window.

    A stretch of no length is whole in the hour that it is in.
    """
    first = np.maximum(start_ns, from_unix_ns)
    last = np.minimum(end_ns, to_unix_ns)
    momentary = (start_ns == end_ns) & (start_ns >= from_unix_ns) & (start_ns < to_unix_ns)
    number = np.maximum(last - 1, first) // _HOUR_NS - first // _HOUR_NS + 1
    number = np.where((last > first) | momentary, number, 0)
    which = np.repeat(np.arange(start_ns.size), number)
    hour = (first // _HOUR_NS)[which] + np.arange(which.size)
    hour -= np.repeat(np.cumsum(number) - number, number)
    length_ns = np.minimum(last[which], (hour + 1) * _HOUR_NS) - np.maximum(
        first[which], hour * _HOUR_NS
    )
    whole_ns = (end_ns - start_ns)[which]
    share = np.where(whole_ns == 0, 1.0, length_ns / np.maximum(whole_ns, 1))
    return _Pieces(which, hour * HOUR_S, share, length_ns)


def _note_work(
    segments: _Segments,
    engine: Engine,
    hours: dict[tuple[Engine, int], Hour],
    from_unix_ns: int,
    to_unix_ns: int,
) -> None:
    pieces = _by_hour(segments.start_ns, segments.end_ns, from_unix_ns, to_unix_ns)
    found, place = np.unique(pieces.hour, return_inverse=True)
    for hour in found.tolist():
        hours.setdefault((engine, hour), Hour())
    for name, grown in segments.grown.items():
        amounts = grown[pieces.which] * pieces.share
        known = ~np.isnan(amounts)
        sums = np.bincount(place[known], amounts[known], found.size)
        told = np.bincount(place[known], minlength=found.size)
        for at in np.flatnonzero(told).tolist():
            work = hours[engine, int(found[at])].work
            work[name] = work.get(name, 0.0) + float(sums[at])


def _joined(start_ns: IntArray, end_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Their union, in order; what lies at most GAP_S apart is one, as when an engine starts
    again."""
    order = np.argsort(start_ns)
    start_ns, end_ns = start_ns[order], np.maximum.accumulate(end_ns[order])
    breaks = np.flatnonzero(start_ns[1:] - end_ns[:-1] > GAP_S * _NS)
    return (
        start_ns[np.concatenate([[0], breaks + 1])],
        end_ns[np.concatenate([breaks, [start_ns.size - 1]])],
    )


def _note_coefficients(
    told: EngineStretches,
    rows: IntArray,
    engine: Engine,
    hours: dict[tuple[Engine, int], Hour],
) -> None:
    """The latest of each hour: fits only get better."""
    starts = told.first_unix_ns[rows] // _HOUR_NS * HOUR_S
    for name in COEFFICIENTS:
        values = told.coefficients[name][rows]
        known = ~np.isnan(values)
        found, latest = np.unique(starts[known][::-1], return_index=True)
        for hour, value in zip(found.tolist(), values[known][::-1][latest].tolist(), strict=True):
            if (mine := hours.get((engine, hour))) is not None:
                mine.coefficients[name] = value
