"""The counters that the exporter reads: `collector.counters.CounterValues`."""

from collections.abc import Mapping
from typing import Protocol


class CollectorReport(Protocol):
    """The collector's counters at one point in time."""

    @property
    def items(self) -> Mapping[tuple[str, str, str], int]:
        """The number of items for each (signal, result, reason)."""

    @property
    def messages(self) -> Mapping[tuple[str, str, str], int]:
        """The number of messages for each (transport, signal, result)."""

    @property
    def truncated_texts(self) -> int:
        """The number of truncated texts."""

    @property
    def dropped_values(self) -> Mapping[str, int]:
        """The number of invalid values that were left out of stored rows, for each reason."""

    @property
    def listener_failures(self) -> int:
        """The number of stored batches that a listener failed to process."""

    @property
    def waiting_messages(self) -> int:
        """The number of received messages that have no response yet."""

    @property
    def waiting_bytes(self) -> int:
        """The size of the unanswered messages."""

    @property
    def last_commit_unix_ns(self) -> int | None:
        """The time of the last commit, or None before the first."""
