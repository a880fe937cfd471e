"""Place the hops of a request on one time axis, although the engines' clocks may differ.

Durations never change. A hop is moved if it lies outside the range that the client or the router
reports. It is also moved if a prefill does not precede the decode that loads its KV cache. The move
is the smallest possible. Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

from store.joined.grouping import APART_NS, ChainLink, end_ns
from telemetry.joined_request import EngineRole, Row


class Axis(NamedTuple):
    """The start and the end of a request."""

    start_ns: int
    end_ns: int


class Placed(NamedTuple):
    """A hop with its start on the common time axis."""

    link: ChainLink
    start_ns: int
    recomputed: bool


def placed(links: Sequence[ChainLink], outside: Axis | None) -> tuple[Axis, list[Placed]]:
    """Return the start and end of a request, and its hops in the order of time.

    Args:
        links: the hops in the order of their ends.
        outside: the start and end of the request at the client or the router, if known.
    """
    *before, last = links
    recomputed = last.role is EngineRole.DECODE and recomputes(last.row, bool(before))
    last_ns = int(last.row["received_unix_ns"])
    if outside is not None:
        works_ns = sum(_works_ns(each.row) for each in before if each.role is EngineRole.PREFILL)
        room_ns = 0 if recomputed else max(0, works_ns - _waited_ns(last.row))
        last_ns = min(
            max(last_ns, outside.start_ns + room_ns), outside.end_ns - generated_ns(last.row)
        )
        last_ns = max(last_ns, outside.start_ns)
    loads_ns = last_ns + (_length_ns(last.row) if recomputed else _waited_ns(last.row))
    hops = [_placed_before(each, last_ns, loads_ns, outside) for each in before]
    hops.sort(key=lambda each: each.start_ns)
    hops.append(Placed(last, last_ns, recomputed))
    if outside is None:
        ends = (each.start_ns + _length_ns(each.link.row) for each in hops if each.link is last)
        outside = Axis(min(each.start_ns for each in hops), max(ends))
    return outside, hops


def generated_ns(row: Row) -> int:
    """The time from receipt until the engine had the last token.

    Only this part of a hop must lie within the client's range. A server may record the delivery
    after the client has read the last byte.
    """
    return _length_ns(row) - min(_length_ns(row), _ns(row["delivery_s"]))


def recomputes(row: Row, after_prefill: bool) -> bool:
    """Return whether a decode engine computed more than half of the prompt itself.

    Args:
        after_prefill: whether a prefill engine did the prefill. If so, a row without a number of
            cached tokens is assumed to have received the whole KV cache.
    """
    prompt, cached = row["prompt_tokens"], row["cached_tokens"]
    if prompt is None or cached is None:
        return not after_prefill
    return bool(prompt - cached > cached)


def _placed_before(link: ChainLink, last_ns: int, loads_ns: int, outside: Axis | None) -> Placed:
    row = link.row
    recomputed = link.role is EngineRole.DECODE and recomputes(row, True)
    latest_ns = (loads_ns if link.role is EngineRole.PREFILL else last_ns) - _works_ns(row)
    start_ns = int(row["received_unix_ns"])
    if outside is None and start_ns + _length_ns(row) < last_ns - APART_NS:
        # The gap between prefill and decode is impossibly long, so the clocks differ.
        start_ns = last_ns - _length_ns(row)
    start_ns = min(start_ns, latest_ns)
    return Placed(link, max(start_ns, outside.start_ns) if outside else start_ns, recomputed)


def _length_ns(row: Row) -> int:
    return end_ns(row) - int(row["received_unix_ns"])


def _waited_ns(row: Row) -> int:
    """The time from receipt until the engine first scheduled the request."""
    return _ns(row["frontend_s"]) + _ns(row["queue_s"])


def _works_ns(row: Row) -> int:
    """The time from receipt until the engine had the first token."""
    return _waited_ns(row) + _ns(row["prefill_s"])


def _ns(seconds: float | None) -> int:
    return round((seconds or 0.0) * 1e9)
