"""The counters that the exporter reads: `collector.counters.CounterValues`."""

from collections.abc import Mapping
from typing import Protocol


class CollectorReport(Protocol):
    """The collector's counters at one point in time."""

    @property
    def items(self) -> Mapping[tuple[str, str, str], int]:
        """By (signal, result, reason)."""

    @property
    def messages(self) -> Mapping[tuple[str, str, str], int]:
        """By (transport, signal, result)."""

    @property
    def truncated_texts(self) -> int:
        """The number of truncated texts."""

    @property
    def dropped_values(self) -> Mapping[str, int]:
        """Invalid values that were left out of stored rows, by reason."""

    @property
    def listener_failures(self) -> int:
        """Stored batches that a listener failed to process."""

    @property
    def waiting_messages(self) -> int:
        """Received messages without a response yet."""

    @property
    def waiting_bytes(self) -> int:
        """The size of the unanswered messages."""

    @property
    def last_commit_unix_ns(self) -> int | None:
        """The time of the last commit, or None before the first."""
