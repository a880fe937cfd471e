"""Which requests were heard of lately, so that a repeated one counts once.

A sender repeats a batch whose answer it missed. The store tells a repeat by its key; the
counters here tell it by this memory, which is bounded: it holds at least the last
`capacity` requests and at most twice as many, in two generations. At 1,000 requests a
second the default reaches back over 100 s, and OpenTelemetry's exporters give up within 64.
"""

from typing import Final

CAPACITY: Final = 100_000
"""Some 10 MB a generation."""


class RecentIds:
    """A bounded memory of (trace_id, span_id)."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._newer: set[bytes] = set()
        self._older: set[bytes] = set()

    def is_new(self, trace_id: str, span_id: str) -> bool:
        """Whether these ids were not heard of lately; they are from now on."""
        key = bytes.fromhex(trace_id + span_id)
        if key in self._newer or key in self._older:
            return False
        if len(self._newer) >= self._capacity:
            self._older, self._newer = self._newer, set()
        self._newer.add(key)
        return True
