"""Periods of objectives, such as the last 30 days or a calendar month. Pure.

The length of a calendar period varies with the month and with daylight saving time. The factors of
burn-rate alerts are computed from `NOMINAL_DAYS`, so that they are the same in February and in
March.

Source: OpenSLO 1.0, "timeWindow".
"""

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from telemetry import durations

DAY_S: Final = durations.UNITS_S["d"]
NOMINAL_DAYS: Final = {"d": 1, "w": 7, "M": 30, "Q": 90, "Y": 365}
"""Nominal days of each unit of a calendar period."""
_MONTHS: Final = {"M": 1, "Q": 3, "Y": 12}
_NAMES: Final = {"d": "day", "w": "week", "M": "month", "Q": "quarter", "Y": "year"}


@dataclass(frozen=True, slots=True)
class PeriodBounds:
    """The period that contains an instant: start and end in unix seconds."""

    start_s: int
    end_s: int

    @property
    def length_s(self) -> int:
        """The length in seconds."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Calendar:
    """Consecutive periods of a number of days, weeks, months, quarters or years.

    Args:
        start: a local time at which one of the periods starts.
        zone: the IANA name of the time zone of `start`.
        unit: a key of `NOMINAL_DAYS`.
    """

    start: datetime
    zone: str
    number: int
    unit: str

    @property
    def nominal_s(self) -> int:
        """The factors of alerts are computed from this length."""
        return self.number * NOMINAL_DAYS[self.unit] * DAY_S

    @property
    def duration(self) -> str:
        """The length in OpenSLO's notation, such as 1M."""
        return f"{self.number}{self.unit}"

    @property
    def text(self) -> str:
        """The period as display text: `a calendar month (UTC)`."""
        name = _NAMES[self.unit]
        period = f"a calendar {name}" if self.number == 1 else f"{self.number} calendar {name}s"
        midnight = self.start.replace(day=1, hour=0, minute=0, second=0)
        begins = (
            ""
            if self.duration == "1M" and self.start == midnight
            else (f"from {self.start:%Y-%m-%d %H:%M}, ")
        )
        return f"{period} ({begins}{self.zone})"

    def at(self, at_s: int) -> PeriodBounds:
        """The period that contains an instant."""
        index = self._index(at_s)
        return PeriodBounds(self._starts_s(index), self._starts_s(index + 1))

    def boundaries(self, from_s: int, to_s: int) -> Iterator[int]:
        """Yield the starts of the periods, from the period at `from_s` to the first period after
        `to_s`."""
        index = self._index(from_s)
        while True:
            starts_s = self._starts_s(index)
            yield starts_s
            if starts_s > to_s:
                return
            index += 1

    def _index(self, at_s: int) -> int:
        """The index of the period at an instant. Period 0 starts at `start`."""
        local = datetime.fromtimestamp(at_s, ZoneInfo(self.zone)).replace(tzinfo=None)
        if self.unit in _MONTHS:
            months = (local.year - self.start.year) * 12 + local.month - self.start.month
            index = months // (self.number * _MONTHS[self.unit])
        else:
            index = (local - self.start) // timedelta(days=self.number * NOMINAL_DAYS[self.unit])
        # The estimated index may be off by one in the month in which a period begins, and at the
        # end of daylight saving time.
        while self._starts_s(index) > at_s:
            index -= 1
        while self._starts_s(index + 1) <= at_s:
            index += 1
        return index

    def _starts_s(self, index: int) -> int:
        units = index * self.number
        if self.unit in _MONTHS:
            months = self.start.year * 12 + self.start.month - 1 + units * _MONTHS[self.unit]
            year, month = months // 12, months % 12 + 1
            # If a month has no such day, such as the 31st, the period starts on the month's last
            # day.
            day = min(self.start.day, monthrange(year, month)[1])
            local = self.start.replace(year=year, month=month, day=day)
        else:
            local = self.start + timedelta(days=units * NOMINAL_DAYS[self.unit])
        return int(local.replace(tzinfo=ZoneInfo(self.zone)).timestamp())
