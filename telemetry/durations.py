"""Parse and format durations: a number and a unit, such as 500ms, 90s, 15m, 1.5h, 7d, 4w. Pure."""

import re
from decimal import Decimal
from typing import Final

UNITS_NS: Final = {
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3_600 * 10**9,
    "d": 86_400 * 10**9,
    "w": 604_800 * 10**9,
}
UNITS_S: Final = {unit: ns // 10**9 for unit, ns in UNITS_NS.items() if unit != "ms"}

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|[smhdw])", re.ASCII)
_SHOWN = 60


def parse_ns(text: str) -> int:
    """The nanoseconds of a duration.

    Raises:
        ValueError: the text is malformed, or the duration is zero.
    """
    found = int(_nanoseconds(text))
    if not found:
        raise ValueError(
            f"{text[:_SHOWN]!r} is not a duration; allowed: a number above 0 of up to nine digits,"
            f" and a unit of {', '.join(UNITS_NS)}, for instance 500ms, 90s, 15m, 1.5h, 7d"
        )
    return found


def parse_s(text: str) -> int:
    """The seconds of a duration.

    Raises:
        ValueError: the text is malformed, or the duration is zero or not in whole seconds.
    """
    seconds, rest = divmod(_nanoseconds(text), UNITS_NS["s"])
    if rest or not seconds:
        raise ValueError(
            f"{text[:_SHOWN]!r}; allowed: a whole number of seconds above 0, written with a unit"
            f" of {', '.join(UNITS_S)}, for instance 5m, 6h, 30d"
        )
    return int(seconds)


def render(seconds: int) -> str:
    """Seconds as text. The unit is the largest of d, h, m and s in which the number is whole."""
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % UNITS_S[unit] == 0)
    return f"{seconds // UNITS_S[unit]}{unit}"


def _nanoseconds(text: str) -> Decimal:
    found = _DURATION.fullmatch(text)
    return Decimal(found[1]) * UNITS_NS[found[2]] if found else Decimal(0)
