"""Limit the log lines about a target that fails and recovers again and again."""

from dataclasses import dataclass
from typing import Final

LOG_EVERY_NS: Final = 300 * 10**9
"""Minimum time between two log lines about one target. So there are at most 288 lines per day.
After the same time without a discovery, the scraper counts as stalled (`QUIET_S`)."""


@dataclass(slots=True)
class FailureLog:
    """Decides which failures of one target are logged."""

    _last_unix_ns: int | None = None
    _begun: int = 0

    def due(self, now_unix_ns: int, *, begun: bool) -> str | None:
        """Return the end of a failure's log line, or None if this failure is not logged.

        A failure that lasts is logged once. If too little time has passed since the last line, it
        is logged later, with the number of failures in the meantime.

        Args:
            begun: whether this failure is new: the previous attempt succeeded, or failed for a
                different reason.
        """
        self._begun += begun
        last = self._last_unix_ns
        # The clock may have been set back.
        if not self._begun or (last is not None and 0 <= now_unix_ns - last < LOG_EVERY_NS):
            return None
        more, self._begun, self._last_unix_ns = self._begun - 1, 0, now_unix_ns
        return f" ({more} more failures since the last line)" if more else ""
