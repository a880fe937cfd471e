"""Divide the time of a joined request into phases.

Each nanosecond belongs to one phase. If hops overlap, the phase with the highest priority gets the
time. The priorities are, from high to low: work of the decode engine, queue and work of the prefill
engine, wait of the decode engine. Pure.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from store.joined.placement import Axis, Placed
from telemetry.joined_request import (
    DECODE,
    DECODE_QUEUE,
    DELIVERY,
    JOINED_PHASES,
    KV_TRANSFER,
    PREFILL,
    PREFILL_QUEUE,
    ROUTE,
    EngineRole,
    Row,
)

_WORK, _PREFILL, _WAIT = range(3)


class _Segment(NamedTuple):
    start_ns: int
    end_ns: int
    rank: int
    phase: str


Phases = dict[str, float | None]


def phases_s(axis: Axis, hops: Sequence[Placed], first_byte_ns: int) -> tuple[Phases, Phases]:
    """The seconds of each phase, in total and until the first byte. Absent phases are
    None."""
    whole: dict[str, int | None] = dict.fromkeys(JOINED_PHASES)
    for phase in _known_phases(hops):
        whole[phase] = 0
    until = dict(whole)
    for phase, start_ns, end_ns in _phases_in_order(axis, hops):
        whole[phase] = (whole[phase] or 0) + end_ns - start_ns
        length_ns = max(0, min(end_ns, first_byte_ns) - start_ns)
        until[phase] = (until[phase] or 0) + length_ns
    return _seconds(whole), _seconds(until)


def _seconds(lengths_ns: dict[str, int | None]) -> Phases:
    return {phase: None if ns is None else ns / 1e9 for phase, ns in lengths_ns.items()}


def _known_phases(hops: Sequence[Placed]) -> Iterator[str]:
    yield from (ROUTE, DELIVERY)
    roles = {each.link.role for each in hops if each.link.row["queue_s"] is not None}
    if EngineRole.PREFILL in roles:
        yield from (PREFILL_QUEUE, PREFILL)
    if EngineRole.DECODE in roles:
        yield from (DECODE_QUEUE, DECODE)
    if len(roles) > 1:
        yield KV_TRANSFER


def _phases_in_order(axis: Axis, hops: Sequence[Placed]) -> Iterator[tuple[str, int, int]]:
    segments = [
        _Segment(start_ns, end_ns, each.rank, each.phase)
        for hop in hops
        for each in _segments(hop)
        if (start_ns := max(each.start_ns, axis.start_ns))
        < (end_ns := min(each.end_ns, axis.end_ns))
    ]
    segments.sort(key=_precedence)
    cuts = {axis.start_ns, axis.end_ns}
    cuts.update(cut for each in segments for cut in (each.start_ns, each.end_ns))
    for start_ns, end_ns in pairwise(sorted(cuts)):
        covering = (
            each for each in segments if each.start_ns <= start_ns and each.end_ns >= end_ns
        )
        on_top = next(covering, None)
        phase = _phase_between_hops(start_ns, segments) if on_top is None else on_top.phase
        yield phase, start_ns, end_ns


def _precedence(segment: _Segment) -> tuple[int, int]:
    return segment.rank, segment.start_ns


def _segments(hop: Placed) -> Iterator[_Segment]:
    row = hop.link.row
    if row["queue_s"] is None:
        return
    if hop.link.role is EngineRole.PREFILL:
        lengths = [(row["queue_s"], _PREFILL, PREFILL_QUEUE), (row["prefill_s"], _PREFILL, PREFILL)]
    else:
        loaded_s = _loaded_s(row)
        lengths = [
            (loaded_s, _WAIT, KV_TRANSFER),
            (row["queue_s"] - loaded_s, _WAIT, DECODE_QUEUE),
            (row["prefill_s"], _WORK, PREFILL if hop.recomputed else DECODE),
            (row["decode_s"], _WORK, DECODE),
        ]
    start_ns = hop.start_ns + round((row["frontend_s"] or 0.0) * 1e9)
    for length_s, rank, phase in lengths:
        end_ns = start_ns + max(0, round((length_s or 0.0) * 1e9))
        yield _Segment(start_ns, end_ns, rank, phase)
        start_ns = end_ns


def _loaded_s(row: Row) -> float:
    if row["kv_load_s"] is not None:
        return float(row["kv_load_s"])
    # With a LoRA adapter, `queue_held_s` may include the wait for the adapter.
    return float(row["queue_held_s"] or 0.0) if row["lora"] is None else 0.0


def _phase_between_hops(at_ns: int, segments: Sequence[_Segment]) -> str:
    earlier = [each for each in segments if each.end_ns <= at_ns]
    later = [each for each in segments if each.start_ns > at_ns]
    if not later:
        return DELIVERY if earlier else ROUTE
    if not earlier:
        return ROUTE
    was = max(earlier, key=lambda each: each.end_ns)
    then = min(later, key=lambda each: each.start_ns)
    crosses = was.rank == _PREFILL and then.rank != _PREFILL
    return KV_TRANSFER if crosses else ROUTE
