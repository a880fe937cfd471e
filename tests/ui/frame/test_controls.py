"""Tests of custom times in the hour that occurs twice when daylight saving time ends."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from ui.frame.controls import entered_ns, repeated_hour

BERLIN = ZoneInfo("Europe/Berlin")


def unix_ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 10**9


def test_the_page_states_which_of_two_equal_times_is_used() -> None:
    assert repeated_hour("From", unix_ns("2026-10-25T02:30+02:00"), BERLIN) == (
        "From: 02:30 occurs twice in this night. The range uses UTC+02:00. To use the other hour,"
        " write 2026-10-25T01:30:00Z into the page's address."
    )
    assert repeated_hour("To", unix_ns("2026-10-25T02:30+01:00"), BERLIN) == (
        "To: 02:30 occurs twice in this night. The range uses UTC+01:00. To use the other hour,"
        " write 2026-10-25T00:30:00Z into the page's address."
    )


def test_other_times_need_no_note() -> None:
    for text in ("2026-10-25T01:59+02:00", "2026-10-25T03:00+01:00", "2026-03-29T03:30+02:00"):
        assert repeated_hour("From", unix_ns(text), BERLIN) is None
    assert repeated_hour("From", unix_ns("2026-10-25T02:30+02:00"), UTC) is None


def test_a_range_may_end_in_the_second_of_two_equal_hours() -> None:
    early, late = unix_ns("2026-10-25T02:20+02:00"), unix_ns("2026-10-25T02:20+01:00")
    assert entered_ns(datetime(2026, 10, 25, 2, 20), BERLIN, 0) == early
    assert entered_ns(datetime(2026, 10, 25, 2, 20), BERLIN, early + 1) == late
    assert entered_ns(datetime(2026, 10, 25, 2, 20), BERLIN, late) == late
    noon = unix_ns("2026-10-25T12:00+01:00")
    assert entered_ns(datetime(2026, 10, 25, 12), BERLIN, noon + 1) == noon
