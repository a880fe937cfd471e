"""Instants and durations as text. Pure."""

from datetime import UTC, datetime
from typing import Final

UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

_NS: Final = 1_000_000_000


def moment(unix_ns: int) -> str:
    """Return an instant in UTC, to the second: 2026-11-20 10:20:00."""
    return f"{datetime.fromtimestamp(unix_ns // _NS, UTC):%Y-%m-%d %H:%M:%S}"


def length(duration: int) -> str:
    """Return nanoseconds in the largest unit that fits: 15m, 1.5h."""
    seconds = duration / _NS
    unit = max((u for u in UNITS_S if UNITS_S[u] <= seconds), key=UNITS_S.__getitem__, default="s")
    return f"{round(seconds / UNITS_S[unit], 1):g}{unit}"
