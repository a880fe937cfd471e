"""The counters that the exporter reads from a collector, such as `collector.counters.Report`."""

from collections.abc import Mapping
from typing import Protocol


class CollectorReport(Protocol):
    """The collector's counters at an instant."""

    @property
    def items(self) -> Mapping[tuple[str, str, str], int]:
        """Items by (signal, result, reason)."""

    @property
    def messages(self) -> Mapping[tuple[str, str, str], int]:
        """Messages by (transport, signal, result)."""

    @property
    def truncated_texts(self) -> int:
        """Texts that were truncated."""

    @property
    def dropped_values(self) -> Mapping[str, int]:
        """Invalid values that rows were stored without, by reason."""

    @property
    def listener_failures(self) -> int:
        """Stored batches that a listener failed on."""

    @property
    def waiting_messages(self) -> int:
        """Messages that are received and not yet answered."""

    @property
    def waiting_bytes(self) -> int:
        """Size of the unanswered messages."""

    @property
    def last_commit_unix_ns(self) -> int | None:
        """Time of the last commit; None before it."""
