"""Values and tables as plain text."""

from collections.abc import Mapping, Sequence
from math import floor, log10

from telemetry import percentages
from telemetry.printable import printable as printable
from telemetry.time_text import length, moment
from telemetry.window import Window

UNKNOWN = "-"
"""The text for an unknown value. It is never used for 0."""

WIDEST = 40
"""Maximum characters of a label in a table. A longer label ends in an ellipsis."""


def seconds(value_s: float | None) -> str:
    """Format a duration with three digits, in ms below 1 s."""
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
    """Format a whole number with grouped thousands."""
    return UNKNOWN if value is None else f"{value:,}"


def rate(value: float | None) -> str:
    """Format a rate with one to three digits."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percent(ratio: float | None, digits: int = 1) -> str:
    """Format a share with two digits of its distance from 0 or 100 %, such as 99.95%. `digits` is
    the minimum number of decimals."""
    return UNKNOWN if ratio is None else percentages.percent(ratio, digits)


def usd(value: float | None) -> str:
    """Format dollars. Amounts below $1 have three significant digits. Amounts of at least $1,000
    have no cents."""
    if value is None:
        return UNKNOWN
    sign, size = ("-" if value < 0 else ""), abs(value)
    if size >= 1_000:
        return f"{sign}${size:,.0f}"
    if size >= 0.995:
        return f"{sign}${size:,.2f}"
    if size < 5e-10:  # a sum that should be 0 can have a rounding error
        return "$0"
    return f"{sign}${size:.{2 - floor(log10(size))}f}"


def span(window: Window) -> str:
    """Format a window. The date is printed once if the window starts and ends on the same day."""
    start, end = moment(window.from_unix_ns), moment(window.to_unix_ns)
    if start[:10] == end[:10]:
        end = end[11:]
    return f"{start} to {end} UTC ({length(window.to_unix_ns - window.from_unix_ns)})"


def instant(unix_ns: int) -> str:
    """Format an instant."""
    return f"{moment(unix_ns)} UTC"


def label(value: str | int | bool | None) -> str:
    """A label without control characters, of limited length."""
    if value is None:
        return UNKNOWN
    return printable(str(value), WIDEST)


def interval(percentiles: Mapping[str, float | None]) -> str:
    """Format the 95 % interval of the 99th percentile."""
    if percentiles["p99"] is None:
        return UNKNOWN
    if percentiles["p99_low"] is None:
        return "too few requests"
    return f"{seconds(percentiles['p99_low'])} to {seconds(percentiles['p99_high'])}"


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int, keep: int = 0
) -> list[str]:
    """The lines of an aligned table.

    Args:
        left: the number of leading columns that are aligned left.
        keep: the number of leading columns that are printed even if all their cells are unknown.
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
