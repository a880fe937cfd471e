"""The ids of recent requests, so that a request that arrives twice is counted once.

The ids are in two sets. When the newer set is full (`capacity` ids), it replaces the older set, and
a new set is started. At 1,000 requests per second, the default covers 100 s. OpenTelemetry's
exporters stop retrying within 64 s.
"""

from collections.abc import Sequence
from typing import Final

from telemetry.requests import Source

CAPACITY: Final = 100_000
"""Maximum number of ids in each of the two sets (about 10 MB)."""


class RecentIds:
    """A bounded set of ids. An id is a pair (trace_id, span_id)."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._newer: set[bytes] = set()
        self._older: set[bytes] = set()

    def new_among(self, trace_ids: Sequence[str], span_ids: Sequence[str]) -> Sequence[int]:
        """Return the indices of the ids that are not stored yet, and store these ids."""
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
    """The source that reported each request id, for at least the newest `capacity` ids.

    Tailspan's plugin and the engine's own spans may report the same request.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._newer: dict[str, bool] = {}
        self._older: dict[str, bool] = {}

    def from_another(self, request_id: str | None, source: str) -> bool:
        """Whether a different source has reported this request. If not, store this source."""
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
