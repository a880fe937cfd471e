"""Defines the counters that the exporter reads, such as `collector.counters.CounterValues`."""

from collections.abc import Mapping
from typing import Protocol


class CollectorReport(Protocol):
    """The collector's counters at one point in time."""

    @property
    def items(self) -> Mapping[tuple[str, str, str], int]:
        """Return counts of items by (signal, result, reason)."""

    @property
    def messages(self) -> Mapping[tuple[str, str, str], int]:
        """Return counts of messages by (transport, signal, result)."""

    @property
    def truncated_texts(self) -> int:
        """Return the number of truncated texts."""

    @property
    def dropped_values(self) -> Mapping[str, int]:
        """Return counts of invalid values that were left out of stored rows, by reason."""

    @property
    def listener_failures(self) -> int:
        """Return the number of stored batches that a listener failed to process."""

    @property
    def waiting_messages(self) -> int:
        """Return the number of received messages without a response yet."""

    @property
    def waiting_bytes(self) -> int:
        """Return the size of the unanswered messages."""

    @property
    def last_commit_unix_ns(self) -> int | None:
        """Return the time of the last commit, or None before the first commit."""
