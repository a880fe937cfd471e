"""The counters that the exporter reads from a collector, such as `collector.counters.Report`."""

from collections.abc import Mapping
from typing import Protocol


class CollectorReport(Protocol):
    """The collector's counters at one point in time."""

    @property
    def items(self) -> Mapping[tuple[str, str, str], int]:
        """Counts of items by (signal, result, reason)."""

    @property
    def messages(self) -> Mapping[tuple[str, str, str], int]:
        """Counts of messages by (transport, signal, result)."""

    @property
    def truncated_texts(self) -> int:
        """Number of truncated texts."""

    @property
    def dropped_values(self) -> Mapping[str, int]:
        """Invalid values that rows were stored without, by reason."""

    @property
    def listener_failures(self) -> int:
        """Number of stored batches that a listener failed to process."""

    @property
    def waiting_messages(self) -> int:
        """Messages that were received and are not yet answered."""

    @property
    def waiting_bytes(self) -> int:
        """Size of the unanswered messages."""

    @property
    def last_commit_unix_ns(self) -> int | None:
        """Timestamp of the last commit; None before it."""
