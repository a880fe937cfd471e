from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from alerts.periods import DAY_S, NOMINAL_DAYS, Calendar

calendars = st.builds(
    Calendar,
    st.datetimes(datetime(1971, 1, 1), datetime(2099, 1, 1)).map(
        lambda start: start.replace(microsecond=0)
    ),
    st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    st.integers(1, 3),
    st.sampled_from(sorted(NOMINAL_DAYS)),
)
instants = st.integers(365 * DAY_S, 130 * 365 * DAY_S)


def unix_s(year: int, month: int, day: int, zone: str = "UTC", hour: int = 0) -> int:
    return int(datetime(year, month, day, hour, tzinfo=ZoneInfo(zone)).timestamp())


@given(calendars, instants)
def test_each_instant_is_in_exactly_one_period(calendar: Calendar, at_s: int) -> None:
    span = calendar.at(at_s)
    assert span.start_s <= at_s < span.end_s
    assert calendar.at(span.start_s) == span
    assert calendar.at(span.end_s - 1) == span
    assert calendar.at(span.end_s).start_s == span.end_s
    assert abs(span.length_s - calendar.nominal_s) <= 3 * calendar.number * DAY_S + 7200


@given(calendars, instants, st.integers(0, 400 * DAY_S))
def test_boundaries_are_the_starts_of_all_periods(
    calendar: Calendar, from_s: int, length_s: int
) -> None:
    starts = list(calendar.boundaries(from_s, from_s + length_s))
    assert starts[0] == calendar.at(from_s).start_s
    assert starts[-1] > from_s + length_s >= starts[-2]
    assert all(calendar.at(before).end_s == after for before, after in pairwise(starts))


def test_a_month_has_the_length_of_its_calendar_month() -> None:
    """In its time zone, a month in which the clocks go forward is one hour shorter."""
    newyork = Calendar(datetime(2026, 1, 1), "America/New_York", 1, "M")
    march = newyork.at(unix_s(2026, 3, 15))
    assert march.start_s == unix_s(2026, 3, 1, "America/New_York")
    assert march.length_s == 31 * DAY_S - 3600
    february = Calendar(datetime(2026, 1, 1), "UTC", 1, "M").at(unix_s(2028, 2, 10))
    assert february.length_s == 29 * DAY_S
    assert newyork.nominal_s == 30 * DAY_S


def test_a_month_from_the_31st_starts_on_the_last_day_of_a_shorter_one() -> None:
    calendar = Calendar(datetime(2026, 1, 31), "UTC", 1, "M")
    starts = [
        datetime.fromtimestamp(each, UTC).strftime("%m-%d")
        for each in calendar.boundaries(unix_s(2026, 2, 1), unix_s(2026, 4, 1))
    ]
    assert starts == ["01-31", "02-28", "03-31", "04-30"]


def test_quarters_and_weeks_start_at_the_hour_and_weekday_of_the_calendar() -> None:
    quarters = Calendar(datetime(2026, 2, 1), "UTC", 1, "Q")
    assert quarters.at(unix_s(2026, 1, 15)).start_s == unix_s(2025, 11, 1)
    weeks = Calendar(datetime(2026, 11, 2, 6), "Europe/Berlin", 1, "w")
    assert weeks.at(unix_s(2026, 11, 22)).start_s == unix_s(2026, 11, 16, "Europe/Berlin", 6)


def test_the_text_names_the_start_unless_it_is_the_first_of_a_month() -> None:
    assert Calendar(datetime(2026, 1, 1), "UTC", 1, "M").text == "a calendar month (UTC)"
    assert Calendar(datetime(2026, 1, 5), "UTC", 2, "w").text == (
        "2 calendar weeks (from 2026-01-05 00:00, UTC)"
    )
