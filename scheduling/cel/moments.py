"""Moments on the calendar: the years that a timestamp can show, and what a clock says.

The calendar is the Gregorian one without an end in both directions, as in Go: a time zone may take a moment into the
year 0 or 10000, which Python's datetime cannot hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduling.cel.values import Fault, Timestamp

SECOND = 1_000_000_000
"""Nanoseconds."""
MIN_SECOND, MAX_SECOND = -62_135_596_800, 253_402_300_799
"""The first second of the year 1 and the last of the year 9999, since 1970."""


def timestamp(nanoseconds: int, offset: int = 0) -> Timestamp:
    """A timestamp in the years 1 to 9999. Raises Fault outside."""
    if MIN_SECOND <= nanoseconds // SECOND <= MAX_SECOND:
        return Timestamp(nanoseconds, offset)
    raise Fault("timestamp overflow")


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in(year: int, month: int) -> int:
    """The days of a month, from 1 to 12, of any year."""
    if month == 2:
        return 29 if _leap(year) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def day_number(year: int, month: int, day: int) -> int:
    """Days since 1970; the year 0 is possible here, not in datetime."""
    before = year - (month <= 2)
    era = before // 400
    of_era = before - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@dataclass(frozen=True, slots=True)
class Clock:
    """A moment as calendar and clock show it; `day` of the month from 1, `year_day` from 0."""

    year: int
    month: int
    day: int
    year_day: int
    week_day: int
    second: int
    """Of the day."""


def clock(seconds: int) -> Clock:
    """Seconds since 1970, of local time, on the calendar; any year is possible, unlike in datetime."""
    days, second = divmod(seconds, 86400)
    shifted = days + 719468
    era, of_era = divmod(shifted, 146097)
    of_year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    march_day = of_era - (365 * of_year + of_year // 4 - of_year // 100)
    march_month = (5 * march_day + 2) // 153
    month = march_month + 3 if march_month < 10 else march_month - 9
    year = of_year + era * 400 + (month <= 2)
    day = march_day - (153 * march_month + 2) // 5 + 1
    return Clock(year, month, day, days - day_number(year, 1, 1), (days + 4) % 7, second)
