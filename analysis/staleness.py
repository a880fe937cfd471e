"""Whether data still comes in. What is old looks healthy, because nothing in it is wrong.

Pure.
"""

from typing import Final

EXPORT_S: Final = 5.0
"""How often the instrumentation sends, also while no request runs (its setting
OTEL_BSP_SCHEDULE_DELAY, 5,000 ms by default)."""

STALE_S: Final = 6 * EXPORT_S
"""Without data for so long, several exports in a row have failed or nobody sends."""

_NS: Final = 10**9


def silence_s(newest_unix_ns: int | None, to_unix_ns: int, now_unix_ns: int) -> float | None:
    """For how long no data has come; None where it does come, none ever came, or where a range
    is looked at that ended before now.

    Args:
        newest_unix_ns: of what the newest request or sample is.
        to_unix_ns: where the range ends.
        now_unix_ns: the reader's clock.
    """
    if newest_unix_ns is None or now_unix_ns - to_unix_ns > STALE_S * _NS:
        return None
    silent = (now_unix_ns - newest_unix_ns) / _NS
    return silent if silent > STALE_S else None
