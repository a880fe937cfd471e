"""Format shares as percentages. Pure."""

from math import floor, log10
from typing import Final

_ROUNDING: Final = 1e-9
"""If the distance of a percentage from 0 or 100 is smaller than this, it is a rounding error."""


def percent(ratio: float, decimals: int = 1, unit: str = "%") -> str:
    """Format a ratio as a percentage, such as 99.96%. Show at least two significant digits of the
    distance from 0 or 100 %.

    Only the ratio 0 becomes 0 %, and only the ratio 1 becomes 100 %.

    Args:
        decimals: the minimum number of decimals.
    """
    rest = 100 * min(abs(ratio), abs(1.0 - ratio))
    if rest < _ROUNDING:
        return f"{100 * round(ratio):.{decimals}f}{unit}"
    most = max(decimals, 1 - floor(log10(rest)))
    whole, _, digits = f"{100 * ratio:,.{most}f}".partition(".")
    kept = digits[:decimals] + digits[decimals:].rstrip("0")
    return f"{whole}.{kept}{unit}" if kept else f"{whole}{unit}"
