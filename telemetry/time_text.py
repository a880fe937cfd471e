"""Instants and durations as text. Pure."""

from datetime import UTC, datetime
from typing import Final

from telemetry.durations import UNITS_S

_NS: Final = 1_000_000_000


def moment(unix_ns: int) -> str:
    """An instant in UTC, to the second: 2026-11-20 10:20:00."""
    return f"{datetime.fromtimestamp(unix_ns // _NS, UTC):%Y-%m-%d %H:%M:%S}"


def length(duration: int) -> str:
    """A duration in nanoseconds in a suitable unit, such as 15m or 1.5h."""
    seconds = duration / _NS
    unit = next((unit for unit in ("d", "h", "m") if UNITS_S[unit] <= seconds), "s")
    return f"{round(seconds / UNITS_S[unit], 1):g}{unit}"
