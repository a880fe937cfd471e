"""The key of one request, in addresses and tables. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.over_time.time_bins import SECOND_NS
from ui.kit.instants import LATEST_UNIX_S


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The ids of one request, and when it was received, if this time is known.

    The database is sorted by this time. A request whose key contains the time is found without a
    search.
    """

    received_unix_ns: int | None
    trace_id: str
    span_id: str

    @staticmethod
    def of(row: Mapping[str, Any]) -> "RequestKey":
        """The key of a stored row."""
        return RequestKey(row["received_unix_ns"], row["trace_id"], row["span_id"])

    def __str__(self) -> str:
        if self.received_unix_ns is None:
            return f"{self.trace_id}/{self.span_id}"
        return f"{self.received_unix_ns}-{self.trace_id}-{self.span_id}"

    @staticmethod
    def parse(text: str) -> "RequestKey | None":
        """Parse the string form of a key. Return None for any other text."""
        if match := re.fullmatch(r"([0-9a-f]{32})/([0-9a-f]{16})", text):
            return RequestKey(None, match[1], match[2])
        match = re.fullmatch(r"([0-9]{1,19})-([0-9a-f]{32})-([0-9a-f]{16})", text)
        if match is None or int(match[1]) >= LATEST_UNIX_S * SECOND_NS:
            return None
        return RequestKey(int(match[1]), match[2], match[3])
