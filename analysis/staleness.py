"""Detect missing data. Old data looks healthy, because its values are normal.

Pure.
"""

from typing import Final

EXPORT_S: Final = 5.0
"""The instrumentation's export interval in seconds (OTEL_BSP_SCHEDULE_DELAY, 5,000 ms by default).
It exports even without requests.
"""

STALE_S: Final = 6 * EXPORT_S
"""After this many seconds without data, several exports in a row have failed or no sender is
active."""

_NS: Final = 10**9


def silence_s(newest_unix_ns: int | None, to_unix_ns: int, now_unix_ns: int) -> float | None:
    """Return for how many seconds no data has arrived. None if data arrives, if there never was
    data, or if the range ended in the past.

    Args:
        newest_unix_ns: instant of the newest request or sample.
        to_unix_ns: the end of the range.
        now_unix_ns: the reader's clock.
    """
    if newest_unix_ns is None or now_unix_ns - to_unix_ns > STALE_S * _NS:
        return None
    silent = (now_unix_ns - newest_unix_ns) / _NS
    return silent if silent > STALE_S else None
