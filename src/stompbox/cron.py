"""The times of a cron expression: five fields (minute, hour, day, month and day of the week), in UTC.

What the fields mean says cronsim, which reads them. The next time is found here, by the months in which there is one: cronsim looks at
each day, up to fifty years of them where both the day and the day of the week must match, and a client says which. A month is a number of
31 bits here, so that its days are found at once.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import isleap
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final

from cronsim import CronSim, CronSimError

YEARS: Final = 50  # in which there is a time: 29 February comes back to a day of the week within 40, and everything else within 12
_SOME_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH: Final = date(1970, 1, 1).toordinal()
_MINUTES: Final = 24 * 60  # of a day
_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # of months, in days
_WEEKS: Final = sum([1 << 7 * week for week in range(6)])  # so many touch one month


class Cron:
    """Days of the month, or of the week, are bits of a number. Raises ValueError for a text that is no such expression."""

    __slots__ = (
        "_days", "_has_last", "_has_last_weekday", "_hours", "_last_weekdays", "_minutes", "_months", "_needs_both", "_weekdays",
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        try:
            fields = CronSim(text, _SOME_DAY)
        except CronSimError as error:
            raise ValueError(str(error)) from None
        self._minutes = sorted(fields.minutes)
        self._hours = sorted(fields.hours)
        self._months = fields.months
        self._needs_both = fields.day_and
        self._has_last, self._has_last_weekday = (
            CronSim.LAST in fields.days,
            CronSim.LAST_WEEKDAY in fields.days,
        )
        self._days = sum([1 << day for day in fields.days if day > 0])
        weekdays = {(day - 1) % 7 for day in fields.weekdays if isinstance(day, int)}  # 0 is Monday, 7 is 0
        lasts = {(day[0] - 1) % 7 for day in fields.weekdays if isinstance(day, tuple)}
        self._weekdays = _WEEKS * sum([1 << day for day in weekdays])
        self._last_weekdays = _WEEKS * sum([1 << day for day in lasts])

    def after(self, now: int) -> int:
        """The next time, both in ms since the epoch. Raises ValueError where there is none in fifty years."""
        day, minute = divmod(now // 60_000 + 1, _MINUTES)
        today = date.fromordinal(_EPOCH + day)
        later = self._later(minute)
        if later >= 0 and today == self._day_from(today):
            return (day * _MINUTES + later) * 60_000
        found = self._day_from(date.fromordinal(_EPOCH + day + 1))
        return ((found.toordinal() - _EPOCH) * _MINUTES + self._hours[0] * 60 + self._minutes[0]) * 60_000

    def _later(self, minute: int) -> int:
        """The first of the day's minutes from this one on; -1: none."""
        hours, minutes = self._hours, self._minutes
        hour, rest = divmod(minute, 60)
        at = bisect_left(hours, hour)
        if at == len(hours):
            return -1
        if hours[at] > hour:
            return hours[at] * 60 + minutes[0]
        if rest <= minutes[-1]:
            return hour * 60 + minutes[bisect_left(minutes, rest)]
        return hours[at + 1] * 60 + minutes[0] if at + 1 < len(hours) else -1

    def _day_from(self, first: date) -> date:
        """The first day from this one on."""
        year, month, day = first.year, first.month, first.day
        weekday = (first.weekday() - day + 1) % 7  # of the first of the month
        for _ in range(YEARS * 12 + 1):
            length = _LENGTHS[month] + (month == 2 and isleap(year))
            days = self._of_month(weekday, length) >> day << day if month in self._months else 0
            if days:
                return date(year, month, (days & -days).bit_length() - 1)
            weekday, day, month = (weekday + length) % 7, 1, month + 1
            if month > 12:
                year, month = year + 1, 1
        raise ValueError(f"it has no time in {YEARS} years")

    def _of_month(self, weekday: int, length: int) -> int:
        """The days of a month of so many, which begins on this day of the week."""
        days = self._days
        if self._has_last:
            days |= 1 << length
        if self._has_last_weekday:
            days |= 1 << length - max(0, (weekday + length - 1) % 7 - 4)
        of_week = self._weekdays >> weekday << 1
        if self._last_weekdays:
            of_week |= (self._last_weekdays >> weekday << 1) & (127 << length - 6)
        found = days & of_week if self._needs_both else days | of_week
        return found & (2 << length) - 2

    def __repr__(self) -> str:
        return f"<Cron minutes={self._minutes} hours={self._hours} months={self._months}>"


@lru_cache(256)
def cron_of(text: str) -> Cron:
    """What an expression of five fields says. Raises ValueError."""
    return Cron(text)
