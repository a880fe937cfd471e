import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.options.time_range import instant_ns, window
from telemetry.time_text import moment
from telemetry.window import Window

S = 1_000_000_000
NOW = 1_763_634_000 * S  # 2025-11-20 10:20:00 UTC


@pytest.mark.parametrize(
    "text",
    [
        "1763634000",
        "1763634000.0",
        "2025-11-20T10:20:00Z",
        "2025-11-20T10:20:00",
        "2025-11-20 10:20",
        "2025-11-20T12:20:00+02:00",
        "2025-11-20T02:20:00-08:00",
    ],
)
def test_an_instant_is_unix_seconds_or_iso_8601_and_utc_without_a_zone(text: str) -> None:
    """The machine's time zone does not change the result."""
    assert instant_ns(text) == NOW


def test_a_fraction_of_a_second_is_exact() -> None:
    """A float cannot hold the nanoseconds since 1970."""
    assert instant_ns("1763634000.000000001") == NOW + 1
    assert instant_ns("2025-11-20T10:20:00.000001Z") == NOW + 1_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "-1",
        "1e9",
        "nan",
        "1969-12-31",
        "2025-13-01",
        "10:20",
        "9" * 5000,
        "0001-01-01T00:00:00+14:00",
        "2025-11-20T10:20:00+99:00",
        "1763634000\n",
    ],
)
def test_a_malformed_instant_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text)) + ".*unix seconds.*ISO 8601.*UTC"):
        instant_ns(text)


@given(st.integers(0, 2**62 // S))
def test_a_printed_time_can_be_used_as_an_option(seconds: int) -> None:
    assert instant_ns(moment(seconds * S)) == seconds * S


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None, None), (NOW - 900 * S, NOW)),
        (("1h", None, None), (NOW - 3600 * S, NOW)),
        ((None, "1763633990", None), (NOW - 10 * S, NOW)),
        ((None, "1763633990", "1763633995"), (NOW - 10 * S, NOW - 5 * S)),
        ((None, None, "1763633995"), (NOW - 905 * S, NOW - 5 * S)),
        (("1m", None, "1763633995"), (NOW - 65 * S, NOW - 5 * S)),
        (("90000d", None, None), (0, NOW)),
    ],
)
def test_a_window_is_the_requested_range(
    given: tuple[str | None, str | None, str | None], expected: tuple[int, int]
) -> None:
    assert window(*given, NOW) == Window(*expected)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (("15m", "1763633990", None), "--last and --from exclude each other"),
        (("15", None, None), "--last '15' is not a duration"),
        ((None, "noon", None), "--from 'noon' is not a time"),
        ((None, None, "noon"), "--to 'noon' is not a time"),
        ((None, "2025-11-20T11:00", None), "--from 2025-11-20 11:00:00, --to .*10:20:00 .now."),
        ((None, "1763633990", "1763633990"), "must end after it begins"),
        ((None, "1763633990", "9999-12-31"), "2262"),
        (("", None, None), "--last '' is not a duration"),
    ],
)
def test_an_impossible_window_is_refused_with_the_option_and_its_value(
    given: tuple[str | None, str | None, str | None], wanted: str
) -> None:
    with pytest.raises(ValueError, match=wanted):
        window(*given, NOW)
