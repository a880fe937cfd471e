"""Tables for people: aligned columns, ms under a second, nothing that moves the cursor."""

from collections.abc import Sequence
from math import floor, log10

from store.queries import Window
from telemetry.printable import printable as printable
from telemetry.time_text import length, moment

UNKNOWN = "-"
"""Shown for what is not known; never 0."""

WIDEST = 40
"""Characters of a cell; a longer label is cut and ends in an ellipsis."""


def seconds(value_s: float | None) -> str:
    """A duration to three digits, in ms under 1 s."""
    if value_s is None:
        return UNKNOWN
    if abs(value_s) < 0.0995:
        return f"{value_s * 1e3:.1f} ms"
    if abs(value_s) < 0.9995:
        return f"{value_s * 1e3:.0f} ms"
    if abs(value_s) < 9.995:
        return f"{value_s:.2f} s"
    return f"{value_s:,.1f} s"


def count(value: int | None) -> str:
    """A whole number with thousands apart."""
    return UNKNOWN if value is None else f"{value:,}"


def rate(value: float | None) -> str:
    """A rate to a sensible number of digits."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def usd(value: float | None) -> str:
    """Dollars: to the cent from $1 on, to three digits below."""
    if value is None:
        return UNKNOWN
    sign, size = ("-" if value < 0 else ""), abs(value)
    if size >= 1_000:
        return f"{sign}${size:,.0f}"
    if size >= 0.995:
        return f"{sign}${size:,.2f}"
    if size < 5e-10:  # a sum's rounding
        return "$0"
    return f"{sign}${size:.{2 - floor(log10(size))}f}"


def span(window: Window) -> str:
    """A window: start, end, length; the date once if it is one day."""
    start, end = moment(window.from_unix_ns), moment(window.to_unix_ns)
    if start[:10] == end[:10]:
        end = end[11:]
    return f"{start} to {end} UTC ({length(window.to_unix_ns - window.from_unix_ns)})"


def label(value: str | int | bool | None) -> str:
    """A label as it can be shown in a terminal: no control characters, not endless."""
    if value is None:
        return UNKNOWN
    return printable(str(value), WIDEST)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int, keep: int = 0
) -> list[str]:
    """Lines of an aligned table.

    Args:
        header: a name per column.
        rows: the cells.
        left: how many columns, from the first, are text and aligned left.
        keep: how many columns, from the first, stay even if all of their cells are unknown.
    """
    kept = [
        place
        for place in range(len(header))
        if place < keep or any(row[place] != UNKNOWN for row in rows)
    ]
    widths = {place: max(len(row[place]) for row in (header, *rows)) for place in kept}
    return [
        "  ".join(
            row[place].ljust(widths[place]) if place < left else row[place].rjust(widths[place])
            for place in kept
        ).rstrip()
        for row in (header, *rows)
    ]
