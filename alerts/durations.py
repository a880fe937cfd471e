"""Durations as OpenSLO and Prometheus write them: 5m, 6h, 30d, 4w."""

import re

UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhdw])", re.ASCII)


def parse_s(text: str) -> int:
    """Seconds of a duration.

    Raises:
        ValueError: not such a duration.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text[:60]!r}; allowed: a whole number above 0 and a unit of {', '.join(UNITS_S)},"
            " for instance 5m, 6h, 30d"
        )
    return int(match[1]) * UNITS_S[match[2]]


def render(seconds: int) -> str:
    """A duration in its largest whole unit below a week; the inverse of `parse_s`."""
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % UNITS_S[unit] == 0)
    return f"{seconds // UNITS_S[unit]}{unit}"
