"""Compute the time that each engine was up, loading and busy in each hour. Pure.

An engine is up between two samples that are at most GAP_S apart. Its totals are assumed to grow
evenly between these samples. A longer gap is neither billed nor idle, because the machine may not
have been rented.

Two processes that report step totals under the same name at the same time are two servers. A
process without step totals is an API server.

A step's time is reported at its end, so busy time may exceed the time between two samples. The
surplus is moved to earlier intervals between samples. If a part of the surplus fits into no
interval, the samples contradict each other. This part is added to `contradicted_s`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from telemetry.billing_data import COEFFICIENTS, GAP_S, WORK, EngineCounterSpans
from telemetry.counter_series import CounterSeries, FloatArray, IntArray
from telemetry.starts import MAX_LOADING_S, EngineStart

HOUR_S: Final = 3_600
MAX_PROCESSES: Final = 64
"""Maximum number of process ids per engine that `servers_at` compares."""
_NS: Final = 10**9
_HOUR_NS: Final = HOUR_S * _NS

Engine = tuple[str, int]
"""Replica and engine number."""


@dataclass(slots=True)
class Hour:
    """One engine's times and work in one hour, within the window."""

    wall_s: float = 0.0
    """Seconds that the engine was up, including loading. If servers share the engine's name, their
    seconds are added."""
    loading_s: float = 0.0
    work: dict[str, float] = field(default_factory=dict)
    coefficients: dict[str, float] = field(default_factory=dict)

    @property
    def busy_s(self) -> float | None:
        """Seconds that the engine spent in steps, or None if they are not reported."""
        busy_s = self.work.get("busy_s_total")
        return 0.0 if busy_s is None and self.wall_s and self.loading_s >= self.wall_s else busy_s


@dataclass(frozen=True, slots=True)
class Uptime:
    """The times of each engine in each hour. A key of `hours` is an engine and the start of an hour
    in unix seconds."""

    hours: dict[tuple[Engine, int], Hour]
    regions: dict[str, str | None]
    gaps_s: float
    """Total length of the gaps in seconds. A gap is longer than GAP_S."""
    up_s: float = 0.0
    """Seconds in which at least one engine was up."""
    up_unix_ns: tuple[int, int] | None = None
    contradicted_s: float = 0.0


def uptime_of(
    samples: EngineCounterSpans,
    from_unix_ns: int,
    to_unix_ns: int,
    starts: Sequence[EngineStart] = (),
) -> Uptime:
    """The uptime of each engine in a window.

    Args:
        samples: samples from the window, and from up to GAP_S before and after it.
    """
    hours: dict[tuple[Engine, int], Hour] = {}
    regions: dict[str, str | None] = {}
    whole: dict[Engine, list[SampleSender]] = {}
    order = np.lexsort((samples.first_unix_ns, samples.which))
    first_ns = samples.first_unix_ns
    parts = np.split(order, np.flatnonzero(np.diff(samples.which[order])) + 1)
    contradicted_s = 0.0
    # sorted by time, so that each hour keeps its latest step model
    for rows in sorted((each for each in parts if each.size), key=lambda each: first_ns[each[0]]):
        count = samples.counts[int(samples.which[rows[0]])]
        engine = (count.replica, count.engine)
        regions[count.replica] = samples.regions[int(samples.which[rows[0]])]
        segments, beyond_s = _move_surplus_earlier(_segments(samples, rows, count.started_unix_ns))
        contradicted_s += float(beyond_s[_inside(segments, from_unix_ns, to_unix_ns)].sum())
        whole.setdefault(engine, []).append(
            SampleSender(
                count.process,
                *_merged_ranges(segments.start_ns, segments.end_ns),
                counts_steps=bool(np.isfinite(segments.grown["busy_s_total"]).any()),
            )
        )
        _note_work(segments, engine, hours, from_unix_ns, to_unix_ns)
        _note_coefficients(samples, rows, engine, hours)
    loading = _loading(starts)
    gaps_ns = 0
    up: list[Spans] = []
    for engine in {*whole, *loading}:
        spans, servers, is_loading = presence(whole.get(engine, []), loading.get(engine))
        up.append(Spans(spans.start_ns[servers > 0], spans.end_ns[servers > 0]))
        pieces = _by_hour(spans.start_ns, spans.end_ns, from_unix_ns, to_unix_ns)
        for which, hour, length_ns in zip(
            pieces.which.tolist(), pieces.hour.tolist(), pieces.length_ns.tolist(), strict=True
        ):
            if not servers[which]:
                gaps_ns += length_ns
                continue
            mine = hours.setdefault((engine, hour), Hour())
            mine.wall_s += length_ns / _NS * int(servers[which])
            mine.loading_s += length_ns / _NS if is_loading[which] else 0.0
    return Uptime(
        hours,
        regions,
        gaps_ns / _NS,
        *_covered(up, from_unix_ns, to_unix_ns),
        contradicted_s,
    )


class _Segments(NamedTuple):
    start_ns: IntArray
    end_ns: IntArray
    grown: dict[str, FloatArray]


def _segments(samples: EngineCounterSpans, rows: IntArray, started_ns: int) -> _Segments:
    """The segments of one process. A segment lasts from the first to the last sample of a row, or
    from a row to the next row. If the process started at most GAP_S before the first sample, the
    first segment begins at this start."""
    first_ns, last_ns = samples.first_unix_ns[rows].copy(), samples.last_unix_ns[rows]
    # The first samples may lack a total. The increase from the start to the first reported value is
    # then assigned to the segment that ends at this value.
    begun = bool(0 <= first_ns[0] - started_ns <= GAP_S * _NS)
    if begun:
        first_ns[0] = started_ns
    one = np.zeros(rows.size, np.int64)
    intervals = CounterSeries.of(one, first_ns, last_ns, GAP_S).intervals()
    start_ns, end_ns = intervals.start_unix_ns, intervals.end_unix_ns
    order = np.lexsort((end_ns, start_ns))
    grown = {}
    for name in WORK:
        first, last = samples.first[name][rows], samples.last[name][rows]
        each = intervals.differences(first, last)
        known = int(np.argmax(np.isfinite(first)))
        if begun and known == 0:
            each[0] = last[0]
        elif begun:
            each[rows.size :][intervals.next_positions == known] = first[known]
        # a total decreases only by a reset
        grown[name] = np.maximum(each, 0.0)[order]
    return _Segments(start_ns[order], end_ns[order], grown)


def _move_surplus_earlier(segments: _Segments) -> tuple[_Segments, FloatArray]:
    """Move busy time that exceeds a segment's length (the surplus) to earlier segments.

    Return the changed segments, and for each segment, the busy seconds that fit into no segment:
    (n,). The surplus moves from segment to segment, as in a queue (Lindley 1952), but not across a
    gap. At most GAP_S of a segment's own surplus moves, because steps rarely take longer.
    """
    start_ns, end_ns = segments.start_ns, segments.end_ns
    busy_s = segments.grown["busy_s_total"]
    length_s = (end_ns - start_ns) / _NS
    reported_s = np.nan_to_num(busy_s)
    beyond_s = np.maximum(reported_s - length_s - GAP_S, 0.0)
    if not (reported_s > length_s).any():
        return segments, beyond_s
    surplus_s = reported_s - beyond_s - length_s
    carried_s = np.zeros(reported_s.size + 1)
    """Busy seconds that were received from the next segment."""
    breaks = np.flatnonzero(start_ns[1:] > end_ns[:-1]) + 1
    for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), reported_s.size], strict=True):
        sums = np.cumsum(surplus_s[first:last][::-1])
        waiting = sums - np.minimum.accumulate(np.minimum(sums, 0.0))
        out = waiting[::-1]
        carried_s[first:last] = out
        beyond_s[first] += out[0]
    into_s = np.zeros(reported_s.size)
    into_s[:-1] = carried_s[1:-1]
    into_s[breaks - 1] = 0.0
    kept_s = surplus_s + length_s + into_s - carried_s[:-1]
    kept_s = np.clip(kept_s, 0.0, length_s)  # rounding can exceed the limits
    kept_s = np.where(np.isnan(busy_s) & (kept_s == 0), np.nan, kept_s)
    return segments._replace(grown={**segments.grown, "busy_s_total": kept_s}), beyond_s


def _inside(segments: _Segments, from_unix_ns: int, to_unix_ns: int) -> NDArray[np.bool_]:
    return np.asarray((segments.end_ns > from_unix_ns) & (segments.end_ns <= to_unix_ns))


class _Pieces(NamedTuple):
    """Pieces of time ranges, cut at whole hours."""

    which: IntArray
    hour: IntArray
    share: FloatArray
    length_ns: IntArray


def _by_hour(start_ns: IntArray, end_ns: IntArray, from_unix_ns: int, to_unix_ns: int) -> _Pieces:
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
        counts = np.bincount(place[known], minlength=found.size)
        for at in np.flatnonzero(counts).tolist():
            work = hours[engine, int(found[at])].work
            work[name] = work.get(name, 0.0) + float(sums[at])


class Spans(NamedTuple):
    """Time ranges, in order and without overlap."""

    start_ns: IntArray
    end_ns: IntArray


class SampleSender(NamedTuple):
    """A process that sends samples of an engine, with the time ranges in which it was up."""

    process: int
    start_ns: IntArray
    end_ns: IntArray
    counts_steps: bool


def _merged_ranges(start_ns: IntArray, end_ns: IntArray) -> Spans:
    order = np.argsort(start_ns, kind="stable")
    start_ns, end_ns = start_ns[order], np.maximum.accumulate(end_ns[order])
    breaks = np.flatnonzero(start_ns[1:] > end_ns[:-1])
    return Spans(
        start_ns[np.concatenate([[0], breaks + 1])],
        end_ns[np.concatenate([breaks, [start_ns.size - 1]])],
    )


def servers_at(senders: Sequence[SampleSender], at_ns: IntArray) -> IntArray:
    """Return how many servers share an engine's name at each instant: (n,). If only API servers are
    up, the number is 1."""

    found = _senders_up([each for each in senders if each.counts_steps], at_ns)
    found = np.maximum(found, np.minimum(_senders_up(senders, at_ns), 1))
    by_process: dict[int, list[SampleSender]] = defaultdict(list)
    for each in senders:
        by_process[each.process].append(each)
    often = sorted(by_process.values(), key=len, reverse=True)[:MAX_PROCESSES]
    for several in (each for each in often if len(each) > 1):
        found = np.maximum(found, _senders_up(several, at_ns))
    return found


def _senders_up(senders: Sequence[SampleSender], at_ns: IntArray) -> IntArray:
    begun, ended = (
        np.sort(np.concatenate([np.zeros(0, np.int64), *edges]))
        for edges in (
            [each.start_ns for each in senders],
            [each.end_ns for each in senders],
        )
    )
    number = np.searchsorted(begun, at_ns, side="right")
    return np.asarray(number - np.searchsorted(ended, at_ns, side="right"), np.int64)


def presence(
    senders: Sequence[SampleSender], loading: Spans | None
) -> tuple[Spans, IntArray, NDArray[np.bool_]]:
    """Return the time ranges in which an engine was up, with the number of servers and whether it
    was loading.

    A gap of at most GAP_S, such as a restart, counts as one server up.
    """
    several = [Spans(each.start_ns, each.end_ns) for each in senders]
    several += [] if loading is None else [loading]
    edges = np.unique(np.concatenate([edge for spans in several for edge in spans]))
    start_ns, end_ns = edges[:-1], edges[1:]
    servers = servers_at(senders, start_ns)
    is_loading = np.zeros(start_ns.size, bool)
    if loading is not None:
        begun = np.searchsorted(loading.start_ns, start_ns, side="right")
        is_loading = (begun > np.searchsorted(loading.end_ns, start_ns, side="right")) & (
            servers == 0
        )
    servers = np.where((servers == 0) & is_loading, 1, servers)
    servers = np.where((servers == 0) & (end_ns - start_ns <= GAP_S * _NS), 1, servers)
    return Spans(start_ns, end_ns), servers, is_loading


def _loading(starts: Sequence[EngineStart]) -> dict[Engine, Spans]:
    found: dict[Engine, list[tuple[int, int]]] = defaultdict(list)
    for each in starts:
        if each.loading_s is not None and 0 < each.loading_s <= MAX_LOADING_S:
            begun_ns = each.at_unix_ns - round(each.loading_s * _NS)
            found[each.replica, each.engine].append((begun_ns, each.at_unix_ns))
    return {
        engine: _merged_ranges(
            *(np.array(column, np.int64) for column in zip(*several, strict=True))
        )
        for engine, several in found.items()
    }


def _covered(
    several: Sequence[Spans], from_unix_ns: int, to_unix_ns: int
) -> tuple[float, tuple[int, int] | None]:
    """The covered seconds of a window, and the first and the last covered instant."""
    start_ns = np.concatenate([np.zeros(0, np.int64), *(each.start_ns for each in several)])
    end_ns = np.concatenate([np.zeros(0, np.int64), *(each.end_ns for each in several)])
    start_ns, end_ns = np.maximum(start_ns, from_unix_ns), np.minimum(end_ns, to_unix_ns)
    inside = end_ns > start_ns
    if not inside.any():
        return 0.0, None
    whole = _merged_ranges(start_ns[inside], end_ns[inside])
    covered_ns = int((whole.end_ns - whole.start_ns).sum())
    return covered_ns / _NS, (int(whole.start_ns[0]), int(whole.end_ns[-1]))


def _note_coefficients(
    samples: EngineCounterSpans,
    rows: IntArray,
    engine: Engine,
    hours: dict[tuple[Engine, int], Hour],
) -> None:
    starts = samples.first_unix_ns[rows] // _HOUR_NS * HOUR_S
    for name in COEFFICIENTS:
        values = samples.coefficients[name][rows]
        known = ~np.isnan(values)
        found, latest = np.unique(starts[known][::-1], return_index=True)
        for hour, value in zip(found.tolist(), values[known][::-1][latest].tolist(), strict=True):
            if (mine := hours.get((engine, hour))) is not None:
                mine.coefficients[name] = value
