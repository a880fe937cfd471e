"""Format numbers, times and external text for readers. Pure.

Only this module rounds numbers, adds units, and escapes untrusted text such as ids, tenants and
routes.
"""

import html
import math
import re
import string
from datetime import datetime, tzinfo
from typing import Final

from telemetry import percentages
from telemetry.visible import visible

UNKNOWN: Final = "–"
LABEL_LENGTH: Final = 40


def _significant(value: float) -> str:
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    rounded = round(value, digits)
    if rounded and (shorter := max(0, 2 - math.floor(math.log10(abs(rounded))))) < digits:
        digits = shorter  # 0.9996 rounds to 1.00, which needs fewer decimals
    return f"{rounded:,.{digits}f}"


def seconds(value_s: float | None) -> str:
    """Format a duration with its unit: µs, ms, s (below 2 min), min (below 2 h) or h."""
    if value_s is None or not math.isfinite(value_s):
        return UNKNOWN
    size = abs(value_s)
    if size == 0:
        return "0 ms"
    if size < 0.000_999_5:
        return f"{_significant(value_s * 1e6)} µs"
    if size < 0.999_5:
        return f"{_significant(value_s * 1e3)} ms"
    if size < 120:
        return f"{_significant(value_s)} s"
    if size < 7200:
        return f"{_significant(value_s / 60)} min"
    return f"{_significant(value_s / 3600)} h"


def signed_seconds(value_s: float | None) -> str:
    """Format a difference of durations, with its sign: +1.19 s, −9.70 ms."""
    if value_s is None or not math.isfinite(value_s):
        return UNKNOWN
    return f"{'−' if value_s < 0 else '+'}{seconds(abs(value_s))}"


def tick_seconds(value_s: float) -> str:
    """Format a round duration for an axis, without trailing zeros."""
    number, unit = seconds(value_s).split(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def count(value: float | None) -> str:
    """Format a count, thousands grouped."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """Format a count with its noun: 1 request, 2 requests."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def hidden(requests: int) -> str:
    """A sentence about omitted requests that may match the filters, or an empty text."""
    if not requests:
        return ""
    return (
        f" Incomplete: up to {counted(requests, 'more request')} may match the filters, but"
        " rollups store them as <code>_other</code>, because there are too many label values."
    )


def percent(ratio: float | None) -> str:
    """Format a ratio as a percentage. A ratio above 0 is never 0 %, and a ratio below 1 is never
    100 %."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    if 0 < ratio < 0.01:
        return "< 1 %"
    if 0.99 < ratio < 1:
        return "> 99 %"
    return f"{ratio * 100:.0f} %"


def share(part: float, whole: float) -> str:
    """Format a part of a whole as a percentage. The text is empty if the whole is 0."""
    return percent(part / whole) if whole > 0 else ""


def exact_percent(ratio: float | None) -> str:
    """Format a ratio near 0 or 1 with enough digits, such as 99.83 % or 98.2 %."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    return f"{'−' if ratio < 0 else ''}{percentages.percent(abs(ratio), 0, ' %')}"


def fold(factor: float | None) -> str:
    """Format a factor: 11×, 1.4×, 0.05×."""
    return UNKNOWN if factor is None else f"{number(factor)}×"


def number(value: float | None) -> str:
    """Format a number with three digits. Numbers from 100 have no decimals."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def usd(value: float | None) -> str:
    """Format dollars. Amounts from $1 have cents, and smaller amounts have three significant
    digits."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    sign, size = ("−" if value < 0 else ""), abs(value)
    if size >= 1_000:
        return f"{sign}${size:,.0f}"
    if size >= 0.995:
        return f"{sign}${size:,.2f}"
    if size < 5e-10:  # a rounding error of a sum
        return "$0"
    return f"{sign}${size:.{2 - math.floor(math.log10(size))}f}"


def tick_usd(value: float) -> str:
    """Format a round dollar amount for an axis, without trailing zeros."""
    text = usd(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def span(duration_s: float) -> str:
    """Format a length of time: 15 min, 1 h, 2 d 3 h."""
    left = round(duration_s)
    parts = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2]) or "0 s"


def clock(unix_ns: int, zone: tzinfo, *, date: bool = False) -> str:
    """Format the time of day in the reader's time zone, optionally with the date."""
    at = datetime.fromtimestamp(unix_ns / 1e9, zone)
    return at.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def clock_or_date(unix_ns: int, zone: tzinfo, day_of_unix_ns: int) -> str:
    """Format the time of day, with the date if the other instant is on another day."""
    same_day = clock(unix_ns, zone, date=True)[:10] == clock(day_of_unix_ns, zone, date=True)[:10]
    return clock(unix_ns, zone, date=not same_day)


def zone_name(zone: tzinfo, *unix_ns: int) -> str:
    """The page's time zone, with its offset at each instant, such as `times in Europe/Berlin,
    UTC+02:00, then UTC+01:00`."""
    offset = ", then ".join(dict.fromkeys(zone_offset(zone, each) for each in unix_ns))
    return f"times in {offset}" if offset == "UTC" else f"times in {zone}, {offset}"


def zone_offset(zone: tzinfo, unix_ns: int) -> str:
    """The offset from UTC at an instant, such as `UTC+01:00`, or `UTC`."""
    if str(zone) == "UTC":
        return "UTC"
    offset = datetime.fromtimestamp(unix_ns / 1e9, zone).strftime("%z")
    return f"UTC{offset[:3]}:{offset[3:5]}"


def clock_ms(unix_ns: int, zone: tzinfo) -> str:
    """Format the time of day to the millisecond."""
    # Integers, because a float would round a unix time to a multiple of 256 ns.
    at = datetime.fromtimestamp(unix_ns // 10**9, zone)
    return f"{at.strftime('%H:%M:%S')}.{unix_ns // 10**6 % 1000:03d}"


def plain(text: str, length: int = LABEL_LENGTH) -> str:
    """Untrusted text as one visible line of at most `length` characters.

    Control characters and changes of text direction become �. Without this change, the text could
    hide or reverse the text beside it.
    """
    shown = visible(text[: length + 1])
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def for_html(text: str, length: int = LABEL_LENGTH) -> str:
    """Escape untrusted text for HTML, as an element's text or an attribute's value."""
    return html.escape(plain(text, length))


def anchor(href: str, shown: str) -> str:
    """A link as HTML. `href` is escaped. `shown` is already HTML."""
    return f"<a href='{html.escape(href)}' target='_self'>{shown}</a>"


def code_html(text: str) -> str:
    """Escape Tailspan's own text for HTML. Text between backticks becomes code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def for_markdown(text: str, length: int = LABEL_LENGTH) -> str:
    """Escape untrusted text for Markdown, so that it contains no link, image, colour or TeX.

    Streamlit removes backslashes before it looks for emoji and links, so a similar character
    replaces each colon.
    """
    shown = plain(text, length).replace(":", "꞉")
    return "".join(f"\\{each}" if each in string.punctuation else each for each in shown)


def for_plotly(text: str, length: int = LABEL_LENGTH) -> str:
    """Escape untrusted text for a chart. Plotly parses tags, entities and $…$ (TeX)."""
    return for_html(text, length).replace("$", "&#36;")
