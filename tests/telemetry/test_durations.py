import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.durations import parse_ns, parse_s, render

S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("500ms", 0.5), ("0.25s", 0.25), ("15m", 900), ("1.5h", 5400)),
        *(("7d", 604_800), ("4w", 2_419_200)),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_ns(text) == seconds * S


@pytest.mark.parametrize(
    "text",
    [
        *("", "15", "m", "15 m", "-15m", "15M", "1h30m", "0s", "0.0m", "15m\n", "1e3s", "nan"),
        *("0.0000001ms", "٣m"),
    ],
)
def test_an_invalid_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text)) + ".*ms, s, m, h, d, w.*15m"):
        parse_ns(text)


def test_an_error_shows_only_the_beginning_of_a_long_text() -> None:
    with pytest.raises(ValueError, match="is not a duration") as raised:
        parse_ns("9" * 5000 + "s")
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("text", ["", "5", "0s", "500ms", "0.5s", "-5m", "5 m"])
def test_rules_require_whole_seconds(text: str) -> None:
    """Prometheus does not accept fractions of a second."""
    with pytest.raises(
        ValueError, match=re.escape(repr(text)) + ".*whole number of seconds above 0.*5m"
    ):
        parse_s(text)


@given(st.integers(1, 10**8))
def test_a_formatted_duration_is_parsed_to_the_same_value(seconds: int) -> None:
    assert parse_s(render(seconds)) == seconds
    assert parse_ns(render(seconds)) == seconds * S
