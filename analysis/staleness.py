"""Detect that data no longer arrives, so that pages do not show old values as current. Pure."""

from typing import Final

EXPORT_S: Final = 5.0
"""The default export interval of the instrumentation in seconds (OTEL_BSP_SCHEDULE_DELAY). Samples
are exported even without requests."""

STALE_S: Final = 6 * EXPORT_S
"""Data counts as missing after this many seconds. Six exports have then failed."""

_NS: Final = 10**9


def silence_s(newest_unix_ns: int | None, to_unix_ns: int, now_unix_ns: int) -> float | None:
    """Seconds since the last data arrived. Return None if data still arrives, if no data has ever
    arrived, or if the range ended in the past.

    Args:
        newest_unix_ns: the time of the newest request or sample, or None if there is none.
    """
    if newest_unix_ns is None or now_unix_ns - to_unix_ns > STALE_S * _NS:
        return None
    silent = (now_unix_ns - newest_unix_ns) / _NS
    return silent if silent > STALE_S else None
