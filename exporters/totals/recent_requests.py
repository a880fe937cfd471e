"""Which requests were heard of lately, so that one that is told again counts once.

A sender repeats a batch whose answer it missed. The store tells a repeat by its key; the
counters here tell it by this memory, which is bounded: it holds at least the last
`capacity` requests and, in two generations, at most twice as many and those asked about last.
At 1,000 requests a second the default reaches back over 100 s, and OpenTelemetry's exporters
give up within 64.
"""

from collections.abc import Sequence
from typing import Final

from telemetry.requests import Source

CAPACITY: Final = 100_000
"""Some 10 MB a generation."""


class RecentIds:
    """A bounded memory of (trace_id, span_id)."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._newer: set[bytes] = set()
        self._older: set[bytes] = set()

    def new_among(self, trace_ids: Sequence[str], span_ids: Sequence[str]) -> Sequence[int]:
        """Where among these are ids that were not heard of lately; they are from now on."""
        keys = list(map(bytes.fromhex, map("".join, zip(trace_ids, span_ids, strict=True))))
        fresh = set(keys)
        new: Sequence[int] = range(len(keys))
        if len(fresh) < len(keys) or not (
            fresh.isdisjoint(self._newer) and fresh.isdisjoint(self._older)
        ):
            fresh -= self._newer | self._older
            first = {key: place for place, key in reversed(list(enumerate(keys))) if key in fresh}
            new = sorted(first.values())
        if len(self._newer) >= self._capacity:
            self._older, self._newer = self._newer, set()
        self._newer |= fresh
        return new


class RecentSources:
    """A bounded memory of who told of which request id, in two generations likewise.

    A server may tell of a request twice: through our instrumentation and by spans of its own.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._newer: dict[str, bool] = {}
        self._older: dict[str, bool] = {}

    def told_by_another(self, request_id: str | None, source: str) -> bool:
        """Whether another source told of this request; else this one has from now on."""
        if request_id is None:
            return False
        native = source == Source.NATIVE
        told = self._newer.get(request_id, self._older.get(request_id))
        if told is not None:
            return told is not native
        if len(self._newer) >= self._capacity:
            self._older, self._newer = self._newer, {}
        self._newer[request_id] = native
        return False
