import re
import string
from datetime import UTC
from html.parser import HTMLParser
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.kit import wording

HOSTILE = '<script>alert(1)</script><b onclick="x">**bold** [a](javascript:x) $x^2$ :red[x]'


@pytest.mark.parametrize(
    ("value_s", "shown"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0, "0 ms"),
        (0.000_05, "50.0 µs"),
        (0.0125, "12.5 ms"),
        (0.9996, "1.00 s"),
        (1.93, "1.93 s"),
        (99.97, "100 s"),
        (300, "5.00 min"),
        (10_000, "2.78 h"),
    ],
)
def test_a_duration_carries_its_unit(value_s: float | None, shown: str) -> None:
    assert wording.seconds(value_s) == shown


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_a_duration_is_rounded_by_less_than_one_percent(value_s: float) -> None:
    scale = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
    number, unit = wording.seconds(value_s).split(" ")
    assert float(number.replace(",", "")) * scale[unit] == pytest.approx(value_s, rel=0.0051)


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [(None, "–"), (0, "0 %"), (0.004, "< 1 %"), (0.5, "50 %"), (0.999, "> 99 %"), (1, "100 %")],
)
def test_a_small_share_is_not_rounded_to_zero(ratio: float | None, shown: str) -> None:
    assert wording.percent(ratio) == shown


def test_a_span_has_at_most_two_units() -> None:
    assert [wording.span(s) for s in (0, 45, 900, 3600, 93_784)] == [
        "0 s",
        "45 s",
        "15 min",
        "1 h",
        "1 d 2 h",
    ]


def test_a_time_of_another_day_has_its_date() -> None:
    """The days are those of the reader's zone."""
    tokyo, at = ZoneInfo("Asia/Tokyo"), 1_763_635_452 * 10**9
    assert wording.clock_or_date(at, UTC, at + 12 * 3_600 * 10**9) == "10:44:12"
    assert wording.clock_or_date(at, tokyo, at + 12 * 3_600 * 10**9) == "2025-11-20 19:44:12"


def test_a_time_is_in_the_readers_zone() -> None:
    at = 1_763_635_452_000_000_000
    assert wording.clock(at, UTC) == "10:44:12"
    assert wording.clock(at, UTC, date=True) == "2025-11-20 10:44:12"
    assert wording.zone_offset(ZoneInfo("Asia/Kolkata"), at) == "UTC+05:30"


def test_the_zone_has_both_offsets_if_clocks_change_within_the_range() -> None:
    """On 2026-10-25 at 01:00 UTC, the offset of Berlin changes."""
    change_ns, hour_ns, berlin = 1_792_890_000 * 10**9, 3_600 * 10**9, ZoneInfo("Europe/Berlin")
    across = wording.zone_name(berlin, change_ns - hour_ns, change_ns + hour_ns)
    assert across == "times in Europe/Berlin, UTC+02:00, then UTC+01:00"
    after = wording.zone_name(berlin, change_ns, change_ns + hour_ns)
    assert after == "times in Europe/Berlin, UTC+01:00"


def test_a_difference_has_its_sign() -> None:
    shown = [wording.signed_seconds(value) for value in (1.19, -0.0097, None)]
    assert shown == ["+1.19 s", "−9.70 ms", "–"]


def test_dollars_have_cents_or_three_digits() -> None:
    shown = [wording.usd(value) for value in (None, -1_234.4, 12.3, 0.0859, 1e-12)]
    assert shown == ["–", "−$1,234", "$12.30", "$0.0859", "$0"]


class _Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text())
def test_no_text_becomes_a_tag(text: str) -> None:
    seen = _Seen()
    seen.feed(f"<p>{wording.for_html(text)}</p>")
    seen.close()
    assert seen.tags == ["p"]
    assert seen.text == wording.plain(text)


@given(st.text())
def test_no_text_ends_an_attribute(text: str) -> None:
    assert not set(wording.for_html(text)) & set("<>\"'")


@given(st.text(max_size=10_000))
def test_a_label_is_one_short_line_without_invisible_characters(text: str) -> None:
    shown = wording.plain(text)
    assert len(shown) <= wording.LABEL_LENGTH
    assert not any(ord(character) < 32 or character in "\u202e\u200b\x7f" for character in shown)


def test_a_hostile_label_is_shown_as_text() -> None:
    assert wording.for_html("<b>x</b>") == "&lt;b&gt;x&lt;/b&gt;"
    assert "$" not in wording.for_plotly("$x^2$")
    assert wording.plain("a" * 10_000).endswith("…")
    assert wording.plain("a\nb\u202ec") == "a�b�c"


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.99834, "99.83 %"), (0.982, "98.2 %"), (0.99, "99 %"), (1.0, "100 %"), (0.5006, "50 %"),
        (0.999998, "99.9998 %"), (0.002, "0.2 %"), (0.0, "0 %"), (-0.12, "−12 %"), (2.5, "250 %"),
        (None, "–"),
    ],
)  # fmt: skip
def test_a_ratio_near_1_keeps_its_digits(ratio: float | None, expected: str) -> None:
    assert wording.exact_percent(ratio) == expected


@pytest.mark.parametrize(
    "text",
    [
        "![x](http://evil.example/a.png)",
        "[x](http://evil.example)",
        ":red[x] :smile: $x^2$ `x` **x** <b>x</b>",
        "http://evil.example",
    ],
)
def test_foreign_text_is_no_markdown(text: str) -> None:
    shown = wording.for_markdown(text, 200)
    assert ":" not in shown
    bare = re.sub(r"\\.", "", shown)
    assert not set(bare) & set(string.punctuation)


def test_text_between_backticks_is_code() -> None:
    """Commands print the same texts."""
    assert wording.code_html("run `a < b`, then") == "run <code>a &lt; b</code>, then"
    assert wording.code_html("a ` alone") == "a ` alone"


def test_requests_that_may_match_the_filters_are_mentioned() -> None:
    assert wording.hidden(0) == ""
    assert wording.hidden(1_200).startswith(" Incomplete: up to 1,200 more requests may match")
