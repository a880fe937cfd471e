"""Detect that data no longer arrives, so that pages do not show old values as if they were current.
Pure.
"""

from typing import Final

EXPORT_S: Final = 5.0
"""The instrumentation's export interval in seconds (OTEL_BSP_SCHEDULE_DELAY, 5,000 ms by default).
Samples are exported even without requests."""

STALE_S: Final = 6 * EXPORT_S
"""Seconds without new data after which data counts as missing. By then, six exports in a row have
failed, or no sender is active."""

_NS: Final = 10**9


def silence_s(newest_unix_ns: int | None, to_unix_ns: int, now_unix_ns: int) -> float | None:
    """Return the seconds since the last data arrived, or None if data is not missing.

    Data is not missing if it still arrives, if there never was data, or if the range ended in the
    past.

    Args:
        newest_unix_ns: the time of the newest request or sample; None if there is none.
    """
    if newest_unix_ns is None or now_unix_ns - to_unix_ns > STALE_S * _NS:
        return None
    silent = (now_unix_ns - newest_unix_ns) / _NS
    return silent if silent > STALE_S else None
