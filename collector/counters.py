"""Count received messages and items (spans, data points, log records) by result.

When a message is acknowledged, each of its items counts as `stored`, `skipped` or `refused`. If a
message is not acknowledged, each of its valid items counts as `unstored`. Its invalid items are
counted only when the sender repeats the message.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from collector.drop_reasons import DroppedValue, Refusal, Unstored
from collector.errors import RESULTS
from collector.normalise.batch import NormalisedBatch
from collector.signals import SIGNALS, Signal

TRANSPORTS = ("grpc", "http")


@dataclass(frozen=True, slots=True)
class CounterValues:
    """A copy of all counts, taken at one point in time."""

    items: Mapping[tuple[str, str, str], int]
    """Maps (signal, result, reason) to a number of items. For the result `stored`, the reason is
    empty."""
    messages: Mapping[tuple[str, str, str], int]
    """Maps (transport, signal, result) to a number of messages."""
    truncated_texts: int
    dropped_values: Mapping[str, int]
    listener_failures: int
    waiting_messages: int
    waiting_bytes: int
    last_commit_unix_ns: int | None


class Counters:
    """Thread-safe counts. Every combination of labels starts at 0."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items = {
            (signal.name, result, reason): 0
            for signal in SIGNALS
            for result, reasons in (
                ("stored", ("",)),
                ("skipped", signal.skips),
                ("refused", Refusal),
                ("unstored", Unstored),
            )
            for reason in map(str, reasons)
        }
        self._messages = {
            (transport, signal.name, result): 0
            for transport in TRANSPORTS
            for signal in SIGNALS
            for result in RESULTS
        }
        self._truncated_texts = 0
        self._dropped_values = dict.fromkeys(map(str, DroppedValue), 0)
        self._listener_failures = 0
        self._waiting_messages = 0
        self._waiting_bytes = 0
        self._last_commit_unix_ns: int | None = None

    def message(self, transport: str, signal: Signal, result: str) -> None:
        """Count a message that was answered with this result."""
        with self._lock:
            self._messages[transport, signal.name, result] += 1

    def count_stored(self, signal: Signal, batch: NormalisedBatch) -> None:
        """Count the items of a batch that is about to be acknowledged."""
        with self._lock:
            self._items[signal.name, "stored", ""] += batch.accepted
            for skip, count in batch.skipped.items():
                self._items[signal.name, "skipped", skip] += count
            for refusal, count in batch.refused.items():
                self._items[signal.name, "refused", refusal] += count
            self._truncated_texts += batch.truncated_texts
            for reason, count in batch.dropped_values.items():
                self._dropped_values[reason] += count

    def count_unstored(self, signal: Signal, batch: NormalisedBatch, reason: Unstored) -> None:
        """Count the items of a batch that the store did not store."""
        with self._lock:
            self._items[signal.name, "unstored", reason] += batch.accepted

    def committed(self, at_unix_ns: int) -> None:
        """Set the time of the last commit."""
        with self._lock:
            self._last_commit_unix_ns = at_unix_ns

    def listener_failed(self) -> None:
        """Count an exception of a listener."""
        with self._lock:
            self._listener_failures += 1

    def waiting(self, messages: int, size_bytes: int) -> None:
        """Add to the counts of unanswered messages and of their bytes. The arguments may be
        negative."""
        with self._lock:
            self._waiting_messages += messages
            self._waiting_bytes += size_bytes

    @property
    def waiting_bytes(self) -> int:
        """The total size of the unanswered messages."""
        return self._waiting_bytes

    def report(self) -> CounterValues:
        """The current values."""
        with self._lock:
            return CounterValues(
                items=dict(self._items),
                messages=dict(self._messages),
                truncated_texts=self._truncated_texts,
                dropped_values=dict(self._dropped_values),
                listener_failures=self._listener_failures,
                waiting_messages=self._waiting_messages,
                waiting_bytes=self._waiting_bytes,
                last_commit_unix_ns=self._last_commit_unix_ns,
            )
