"""Read the period, the target and the time slices of an objective."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from alerts.burnrate import Policy
from alerts.errors import shown
from alerts.periods import DAY_S, NOMINAL_DAYS, Calendar
from alerts.slices import Slices
from alerts.strict_yaml import MappingReader
from telemetry import durations

SHORTEST_PERIOD_S: Final = 7 * DAY_S
LONGEST_PERIOD_S: Final = 366 * DAY_S

SLICED: Final = "Timeslices"
METHODS: Final = ("Occurrences", SLICED)
"""`RatioTimeslices` is not supported, because a slice with one request would have the same weight
as a slice with a thousand requests."""
SLICE: Final = ("timeSliceTarget", "timeSliceWindow")

_CALENDAR: Final = re.compile(rf"([1-9][0-9]{{0,2}})([{''.join(NOMINAL_DAYS)}])", re.ASCII)


def read_period(spec: MappingReader) -> tuple[int, Calendar | None]:
    """The period in seconds (nominal for a calendar period), and the calendar, if any.

    Raises:
        DocumentError: the period is malformed or not supported.
    """
    windows = spec.each("timeWindow", ("duration", "isRolling", "calendar"))
    if len(windows) != 1:
        raise spec.error("timeWindow", f"{len(windows)} windows; allowed: exactly one")
    window = windows[0]
    rolling = window.flag("isRolling", "calendar" not in window)
    if rolling and "calendar" in window:
        raise window.error(
            "calendar",
            "a rolling window has no calendar; give isRolling: true or calendar, not both",
        )
    if not rolling and "calendar" not in window:
        raise window.error(
            "isRolling",
            "false, and no calendar is given; allowed: isRolling: true, or calendar: {startTime:"
            " 2026-01-01 00:00:00, timeZone: UTC}",
        )
    calendar = None if rolling else _calendar(window)
    period_s = calendar.nominal_s if calendar else window.duration_s("duration")
    if not SHORTEST_PERIOD_S <= period_s <= LONGEST_PERIOD_S:
        example = "7d to 366d, for instance 30d" if rolling else "1w to 1Y, for instance 1M"
        raise window.error("duration", f"{shown(window.text('duration'))}; allowed: {example}")
    return period_s, calendar


def _calendar(window: MappingReader) -> Calendar:
    written = window.text("duration")
    match = _CALENDAR.fullmatch(written)
    if match is None:
        raise window.error(
            "duration",
            f"{shown(written)}; allowed with a calendar: a whole number and a unit of"
            f" {', '.join(NOMINAL_DAYS)} (day, week, month, quarter, year), for instance 1M",
        )
    reader = window.inner("calendar", ("startTime", "timeZone"))
    start, zone = reader.text("startTime"), reader.text("timeZone")
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise reader.error(
            "timeZone",
            f"{shown(zone)}; allowed: an IANA name, for instance UTC or America/New_York",
        ) from error
    try:
        begins = datetime.fromisoformat(start)
    except ValueError as error:
        raise reader.error("startTime", f"{shown(start)}; {_START}") from error
    if begins.tzinfo is not None or begins.microsecond or not 1970 <= begins.year <= 2100:
        raise reader.error("startTime", f"{shown(start)}; {_START}")
    return Calendar(begins, zone, int(match[1]), match[2])


_START: Final = (
    "allowed: a date and time without a zone, from 1970 to 2100, for instance 2026-01-01 00:00:00"
)


def read_slices(objective: MappingReader, sliced: bool) -> Slices | None:
    """The time slices, or None if each request or probe is an event.

    Raises:
        DocumentError: the slices are malformed, missing, or given without `Timeslices`.
    """
    if not sliced:
        for key in SLICE:
            if key in objective:
                raise objective.error(key, f"is given without budgetingMethod: {SLICED}")
        return None
    target, written = read_share(objective, "timeSliceTarget", all_allowed=True)
    text = objective.text("timeSliceWindow")
    try:
        # In OpenSLO, a number without a unit is in minutes.
        length_s = durations.parse_s(f"{text}m" if text.isdecimal() else text)
    except ValueError as error:
        raise objective.error("timeSliceWindow", str(error)) from error
    if length_s % 60:
        raise objective.error("timeSliceWindow", f"{shown(text)}; allowed: whole minutes")
    return Slices(length_s, target, written)


def over_slices(policy: Policy, slices: Slices, objective: MappingReader) -> Policy:
    """The policy for an objective with slices. A minimum of N bad events becomes N minutes in bad
    slices.

    Raises:
        DocumentError: a window of the policy is not a whole number of slices.
    """
    for length_s in _windows(policy):
        if length_s % slices.length_s:
            shortest = durations.render(min(_windows(policy)))
            raise objective.error(
                "timeSliceWindow",
                f"{slices.length}; allowed: a whole number of minutes that divides each window of"
                f" the alerts (the shortest is {shortest}; {durations.render(length_s)} is not a"
                " multiple)",
            )
    least = -(-policy.minimum_bad_events * 60 // slices.length_s)
    return replace(policy, minimum_bad_events=least)


def _windows(policy: Policy) -> Iterator[int]:
    for pair in policy.pairs:
        yield from (pair.short_s, pair.long_s)


def read_share(
    reader: MappingReader, key: str, percent_key: str | None = None, *, all_allowed: bool = False
) -> tuple[Fraction, str]:
    """A share as an exact fraction, and as display text.

    Args:
        percent_key: the key of the share in percent, or None if percent is not allowed.
        all_allowed: True if the share may be 1.

    Raises:
        DocumentError: the share is missing, given twice, or outside the allowed range.
    """
    most = 1
    if percent_key is not None:
        if (key in reader) == (percent_key in reader):
            raise reader.error(key, f"give {key} or {percent_key}: one of them, not both")
        if percent_key in reader:
            key, most = percent_key, 100
    text = reader.text(key)
    example = "0.99" if most == 1 else "99"
    most_text = f"at most {most}" if all_allowed else f"below {most}"
    problem = f"{shown(text)}; allowed: a decimal number above 0 and {most_text}; 99 % is"
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,12})?", text, re.ASCII):
        raise reader.error(key, f"{problem} {example}")
    value = Decimal(text)
    if not 0 < value < most and not (all_allowed and value == most):
        raise reader.error(key, f"{problem} {example}")
    return Fraction(value) / most, f"{(value * (100 // most)).normalize():f} %"
