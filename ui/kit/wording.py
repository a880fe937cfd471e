"""Numbers, times and foreign text as a tired person reads them.

Pure. Seconds and ratios come in, ms and % go out: this is the edge where they are rounded.
Text from requests (ids, tenants, routes) is hostile until it has passed through here.
"""

import html
import math
import re
import string
from datetime import datetime, tzinfo
from typing import Final

from telemetry.visible import visible

UNKNOWN: Final = "–"
LABEL_LENGTH: Final = 40


def _significant(value: float) -> str:
    """Three significant digits, no exponent, thousands grouped."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    rounded = round(value, digits)
    if rounded and (shorter := max(0, 2 - math.floor(math.log10(abs(rounded))))) < digits:
        digits = shorter  # 0.9996 rounds up into the next decade
    return f"{rounded:,.{digits}f}"


def seconds(value_s: float | None) -> str:
    """A duration with its unit: µs and ms below a second, minutes above two."""
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


def growth(value_s: float | None) -> str:
    """A difference of durations, with its sign: +1.19 s, −9.70 ms."""
    if value_s is None or not math.isfinite(value_s):
        return UNKNOWN
    return f"{'−' if value_s < 0 else '+'}{seconds(abs(value_s))}"


def tick_seconds(value_s: float) -> str:
    """A duration at an axis: a round value, without the zeros that say how exact it is."""
    number, unit = seconds(value_s).split(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def count(value: float | None) -> str:
    """A count, thousands grouped."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """A count with its noun: 1 request, 2 requests."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(ratio: float | None) -> str:
    """A ratio as a percentage; a small share is never rounded to none, a large never to all."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    if 0 < ratio < 0.01:
        return "< 1 %"
    if 0.99 < ratio < 1:
        return "> 99 %"
    return f"{ratio * 100:.0f} %"


def exact_percent(ratio: float | None) -> str:
    """A ratio near all or none as a percentage whose digits tell it from all: 99.83 %, 98.2 %."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    shown = abs(ratio) * 100
    rest = min(abs(100 - shown), shown) if shown <= 100 else 100.0
    digits = 0 if rest < 1e-9 else min(4, max(0, 1 - math.floor(math.log10(rest))))
    told = f"{shown:,.{digits}f}"
    told = told.rstrip("0").rstrip(".") if digits else told
    return f"{'−' if ratio < 0 else ''}{told} %"


def fold(factor: float | None) -> str:
    """How many times: 11×, 1.4×, 0.05×."""
    return UNKNOWN if factor is None else f"{number(factor)}×"


def number(value: float | None) -> str:
    """A number of any size and unit: three digits, large ones whole."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def usd(value: float | None) -> str:
    """Dollars: to the cent from $1 on, to three digits below."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    sign, size = ("−" if value < 0 else ""), abs(value)
    if size >= 1_000:
        return f"{sign}${size:,.0f}"
    if size >= 0.995:
        return f"{sign}${size:,.2f}"
    if size < 5e-10:  # a sum's rounding
        return "$0"
    return f"{sign}${size:.{2 - math.floor(math.log10(size))}f}"


def tick_usd(value: float) -> str:
    """Dollars at an axis: a round value, without the zeros that say how exact it is."""
    told = usd(value)
    return told.rstrip("0").rstrip(".") if "." in told else told


def span(duration_s: float) -> str:
    """A time range in words: 15 min, 1 h, 2 d 3 h."""
    left = round(duration_s)
    parts = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2]) or "0 s"


def clock(unix_ns: int, zone: tzinfo, *, date: bool = False) -> str:
    """Time of day in the reader's zone; the date before it when asked."""
    at = datetime.fromtimestamp(unix_ns / 1e9, zone)
    return at.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def zone_name(zone: tzinfo, unix_ns: int) -> str:
    """In which time zone a page's times are: `times in Europe/Berlin, UTC+01:00`."""
    offset = datetime.fromtimestamp(unix_ns / 1e9, zone).strftime("%z")
    named = str(zone)
    if named == "UTC":
        return "times in UTC"
    return f"times in {named}, UTC{offset[:3]}:{offset[3:5]}"


def clock_ms(unix_ns: int, zone: tzinfo) -> str:
    """Time of day to the millisecond."""
    # From whole numbers: a float of today's nanoseconds is off by some hundred of them.
    at = datetime.fromtimestamp(unix_ns // 10**9, zone)
    return f"{at.strftime('%H:%M:%S')}.{unix_ns // 10**6 % 1000:03d}"


def plain(text: str, length: int = LABEL_LENGTH) -> str:
    """Foreign text in one line of at most `length` characters, nothing in it unseen.

    Control and direction characters are shown as �, so that no label can hide or turn another.
    """
    shown = visible(text[: length + 1])
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def for_html(text: str, length: int = LABEL_LENGTH) -> str:
    """Foreign text to stand inside HTML, as an element's text or an attribute's value."""
    return html.escape(plain(text, length))


def code_html(text: str) -> str:
    """Our own text as HTML; what stands between backticks is code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def for_markdown(text: str, length: int = LABEL_LENGTH) -> str:
    """Foreign text inside Markdown, as in the label of a button: no link, image, colour or TeX.

    A colon becomes one that looks alike, because emoji and addresses are found after unescaping.
    """
    shown = plain(text, length).replace(":", "꞉")
    return "".join(f"\\{each}" if each in string.punctuation else each for each in shown)


def for_plotly(text: str, length: int = LABEL_LENGTH) -> str:
    """Foreign text inside a chart; Plotly reads tags and entities, and $…$ as TeX."""
    return for_html(text, length).replace("$", "&#36;")
