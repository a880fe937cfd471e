"""How long each engine was seen, and how long of that it was busy, hour by hour.

Pure. Between two samples of an engine that are at most GAP_S apart it was there, and its
counts grew evenly. A longer gap is not seen: nobody knows whether a machine was rented then,
so it is neither billed nor idle. What a count had when it was first told is since it started.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from telemetry.accounts import COEFFICIENTS, GAP_S, WORK, EngineMinutes, FloatArray

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
class Segment:
    """Between two samples of one count: from, to (unix ns), and what grew."""

    start_ns: int
    end_ns: int
    grown: dict[str, float]


@dataclass(frozen=True, slots=True)
class Seen:
    """Of each engine its hours, by their start in unix seconds; and where it is."""

    hours: dict[tuple[Engine, int], Hour]
    regions: dict[str, str | None]
    """By replica."""
    gaps_s: float
    """Within the window, between two sightings of an engine that were too far apart."""


def seen(minutes: EngineMinutes, from_unix_ns: int, to_unix_ns: int) -> Seen:
    """What was seen of each engine in a window.

    Args:
        minutes: with those up to GAP_S before and after the window, so that its edges are seen.
        from_unix_ns: the window's start.
        to_unix_ns: its end.
    """
    hours: dict[tuple[Engine, int], Hour] = {}
    regions: dict[str, str | None] = {}
    whole: dict[Engine, list[tuple[int, int]]] = {}
    order = np.lexsort((minutes.first_unix_ns, minutes.which))
    parts = np.split(order, np.flatnonzero(np.diff(minutes.which[order])) + 1)
    for rows in parts:
        if rows.size == 0:
            continue
        count = minutes.counts[int(minutes.which[rows[0]])]
        engine = (count.replica, count.engine)
        regions[count.replica] = minutes.regions[int(minutes.which[rows[0]])]
        for segment in _segments(minutes, rows, count.started_unix_ns):
            whole.setdefault(engine, []).append((segment.start_ns, segment.end_ns))
            for hour, share, _ in _by_hour(
                segment.start_ns, segment.end_ns, from_unix_ns, to_unix_ns
            ):
                work = hours.setdefault((engine, hour), Hour()).work
                for name, grown in segment.grown.items():
                    work[name] = work.get(name, 0.0) + grown * share
        _note_coefficients(minutes, rows, engine, hours)
    gaps_ns = 0
    for engine, stretches in whole.items():
        joined = list(_joined(stretches))
        for start, end in joined:
            for hour, _, length_ns in _by_hour(start, end, from_unix_ns, to_unix_ns):
                hours.setdefault((engine, hour), Hour()).wall_s += length_ns / _NS
        for (_, end), (start, _) in pairwise(joined):
            gaps_ns += max(0, min(start, to_unix_ns) - max(end, from_unix_ns))
    return Seen(hours, regions, gaps_ns / _NS)


def _segments(
    minutes: EngineMinutes, rows: "np.ndarray[tuple[int], np.dtype[np.int64]]", started_ns: int
) -> Iterator[Segment]:
    first_ns, last_ns = minutes.first_unix_ns[rows], minutes.last_unix_ns[rows]
    first = {name: minutes.first[name][rows] for name in WORK}
    last = {name: minutes.last[name][rows] for name in WORK}
    if 0 <= first_ns[0] - started_ns <= GAP_S * _NS:
        yield Segment(started_ns, int(first_ns[0]), _grown({n: v[0] for n, v in first.items()}))
    for place in range(rows.size):
        inside = {name: last[name][place] - first[name][place] for name in WORK}
        yield Segment(int(first_ns[place]), int(last_ns[place]), _grown(inside))
        if place + 1 < rows.size and first_ns[place + 1] - last_ns[place] <= GAP_S * _NS:
            between = {name: first[name][place + 1] - last[name][place] for name in WORK}
            yield Segment(int(last_ns[place]), int(first_ns[place + 1]), _grown(between))


def _grown(differences: dict[str, float]) -> dict[str, float]:
    return {name: float(each) for name, each in differences.items() if not np.isnan(each)}


def _joined(stretches: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Their union; what lies at most GAP_S apart is one, as when an engine starts again."""
    known: tuple[int, int] | None = None
    for start, end in sorted(stretches):
        if known is None:
            known = (start, end)
        elif start - known[1] <= GAP_S * _NS:
            known = (known[0], max(known[1], end))
        else:
            yield known
            known = (start, end)
    if known is not None:
        yield known


def _by_hour(
    start_ns: int, end_ns: int, from_unix_ns: int, to_unix_ns: int
) -> Iterator[tuple[int, float, int]]:
    """The hours that a stretch touches within the window: start, share of the stretch, length.

    A stretch of no length is whole in the hour that it is in.
    """
    if start_ns == end_ns:
        if from_unix_ns <= start_ns < to_unix_ns:
            yield start_ns // _HOUR_NS * HOUR_S, 1.0, 0
        return
    at = max(start_ns, from_unix_ns)
    end = min(end_ns, to_unix_ns)
    while at < end:
        upto = min(end, (at // _HOUR_NS + 1) * _HOUR_NS)
        yield at // _HOUR_NS * HOUR_S, (upto - at) / (end_ns - start_ns), upto - at
        at = upto


def _note_coefficients(
    minutes: EngineMinutes,
    rows: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    engine: Engine,
    hours: dict[tuple[Engine, int], Hour],
) -> None:
    """The latest of each hour: fits only get better."""
    starts = minutes.first_unix_ns[rows] // _HOUR_NS * HOUR_S
    for name in COEFFICIENTS:
        values: FloatArray = minutes.coefficients[name][rows]
        for hour, value in zip(starts.tolist(), values.tolist(), strict=True):
            known = hours.get((engine, hour))
            if known is not None and not np.isnan(value):
                known.coefficients[name] = value
