"""Defines the bounded queue of requests that wait for export."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final

from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.request.record_builder import BuildRecord

SPAN_BYTES: Final = 65536
"""A span with all texts at their limits has 30 KiB."""

QUEUE_BYTES: Final = 64 * 2**20
"""The default queue of 16,384 spans of 2 kB takes 32 MiB."""

QUEUE_FULL: Final = "queue_full"
FAILED: Final = "failed"


class Drops:
    """Counts dropped items for each reason. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter({QUEUE_FULL: 0})

    def add(self, count: int, reason: str) -> None:
        """Add `count` dropped items."""
        with self._lock:
            self._counts[reason] += count

    def snapshot(self) -> dict[str, int]:
        """The total for each reason. The reason "full queue" is always included."""
        with self._lock:
            return dict(self._counts)


class SpanAllowance:
    """A token bucket. Use it only on one thread."""

    def __init__(
        self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._left = float(burst)
        self._at = clock()

    def take(self) -> bool:
        """Take a token. Return False if no token was left."""
        now = self._clock()
        self._left = min(self._left + (now - self._at) * self._per_s, self._burst)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class SpanQueue:
    """The ended requests that wait for export.

    The server's threads append to `ended`. The reading thread appends to `spans`. The sending
    thread takes from `spans`.

    Args:
        limit: maximum number of requests, whether or not encoded.
        byte_limit: maximum total size of the encoded spans.
    """

    def __init__(self, limit: int, drops: Drops, byte_limit: int = QUEUE_BYTES) -> None:
        self.ended: deque[tuple[float, BuildRecord]] = deque()
        self.records: list[tuple[float, RequestRecord]] = []
        """Records that wait for the engine core's measurements."""
        self.spans: deque[bytes] = deque()
        """Encoded spans, oldest first."""
        self._limit = limit
        self._byte_limit = byte_limit
        self._bytes = 0
        self._lock = threading.Lock()
        self._drops = drops

    def __len__(self) -> int:
        return len(self.ended) + len(self.records) + len(self.spans)

    def submit(self, build: BuildRecord) -> None:
        """Add a request that has ended, or drop and count it."""
        if len(self) >= self._limit:
            self._drops.add(1, QUEUE_FULL)
        else:
            self.ended.append((time.monotonic(), build))

    def add(self, span: bytes) -> None:
        """Add an encoded span, or drop and count it."""
        if len(span) > SPAN_BYTES:
            self._drops.add(1, "too_large")
            return
        with self._lock:
            if self._bytes + len(span) > self._byte_limit:
                self._drops.add(1, QUEUE_FULL)
                return
            self._bytes += len(span)
        self.spans.append(span)

    def taken(self, spans: Sequence[bytes]) -> None:
        """Subtract the sizes of spans that have left the queue from the total."""
        with self._lock:
            self._bytes -= sum(map(len, spans))
