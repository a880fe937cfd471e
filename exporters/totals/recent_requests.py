"""Remembers recent requests, so that a repeated one counts once.

A sender repeats a batch whose answer it did not receive. The store recognises a repeat by its key,
the counters here by this memory. It is bounded: it has at least the last `capacity` requests and,
in two generations, at most twice as many. At 1,000 requests a second the default covers 100 s;
OpenTelemetry's exporters give up within 64 s.
"""

from collections.abc import Sequence
from typing import Final

from telemetry.requests import Source

CAPACITY: Final = 100_000
"""About 10 MB per generation."""


class RecentIds:
    """A bounded memory of (trace_id, span_id)."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._newer: set[bytes] = set()
        self._older: set[bytes] = set()

    def new_among(self, trace_ids: Sequence[str], span_ids: Sequence[str]) -> Sequence[int]:
        """Return the indices of ids that are not remembered, and remember them."""
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
    """Remembers which source reported a request id; bounded, in two generations.

    A server may report a request twice: by our instrumentation and by its own spans.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._newer: dict[str, bool] = {}
        self._older: dict[str, bool] = {}

    def from_another(self, request_id: str | None, source: str) -> bool:
        """Return whether another source reported this request; if not, remember this source."""
        if request_id is None:
            return False
        native = source == Source.NATIVE
        remembered = self._newer.get(request_id, self._older.get(request_id))
        if remembered is not None:
            return remembered is not native
        if len(self._newer) >= self._capacity:
            self._older, self._newer = self._newer, {}
        self._newer[request_id] = native
        return False
