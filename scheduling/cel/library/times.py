"""The library of timestamps and durations: calendar, reading and writing as Go's package time does, and their parts.

The calendar is the Gregorian one without an end in both directions, as in Go: a time zone may take a moment into the
year 0 or 10000, which Python's datetime cannot hold. Parts of a timestamp are in UTC unless a time zone is given: a
name of the IANA database, or `+hh:mm`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from scheduling.cel.library.function import Library, method
from scheduling.cel.types import DURATION, INT, INT_MAX, STRING, TIMESTAMP
from scheduling.cel.values import CelFault, Duration, Timestamp, Value

SECOND = 1_000_000_000
"""Nanoseconds."""
MIN_SECOND, MAX_SECOND = -62_135_596_800, 253_402_300_799
"""The first second of the year 1 and the last of the year 9999, since 1970."""


def timestamp(nanoseconds: int, offset: int = 0) -> Timestamp:
    """A timestamp in the years 1 to 9999. Raises CelFault outside."""
    if MIN_SECOND <= nanoseconds // SECOND <= MAX_SECOND:
        return Timestamp(nanoseconds, offset)
    raise CelFault("timestamp overflow")


def days_in(year: int, month: int) -> int:
    """The days of a month, from 1 to 12, of any year."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
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
    """A local time: `day` of the month from 1, `year_day` from 0, `second` of the day."""

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


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_OFFSET, _LAST_OFFSET = -62_000_000_000, 253_000_000_000
"""Moments that datetime can show, in seconds since 1970; earlier and later ones get the offset of these."""
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART = re.compile(r"([0-9]*)(\.([0-9]*))?([^0-9.]+)")
_MOMENT = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d+))?(?:(Z)|([+-])(\d{2}):(\d{2}))", re.ASCII
)
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def parse_duration(text: str) -> int | None:
    """Nanoseconds of a text like `-1h30m` or `1.5s`, rounded down to whole ones; None for any other text."""
    rest = text
    negative = rest[:1] == "-"
    if rest[:1] in ("+", "-"):
        rest = rest[1:]
    if rest == "0":
        return 0
    if not rest:
        return None
    total = 0
    while rest:
        part = _PART.match(rest)
        if part is None:
            return None
        whole, point, fraction, unit = part.groups()
        if unit not in _UNITS or (not whole and not fraction):
            return None
        total += int(whole or "0") * _UNITS[unit] if len(whole) < 20 else INT_MAX + 2
        if point and fraction:
            total += int(int(fraction[:18]) * (_UNITS[unit] / 10 ** len(fraction[:18])))
        rest = rest[part.end() :]
        if total > INT_MAX + 1:
            return None
    if negative:
        return -total
    return total if total <= INT_MAX else None


def parse_timestamp(text: str) -> Timestamp | None:
    """A timestamp in the form of RFC 3339, as leniently as Go; None for any other text."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(each) for each in found.groups()[:6])
    fraction = (found[7] or "0")[:9].ljust(9, "0")
    offset = 0
    if found[8] is None:
        if int(found[10]) > 24 or int(found[11]) > 60:
            return None
        offset = (int(found[10]) * 3600 + int(found[11]) * 60) * (-1 if found[9] == "-" else 1)
    if not 1 <= month <= 12 or not 1 <= day <= days_in(year, month) or hour > 23 or minute > 59 or second > 59:
        return None
    seconds = day_number(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset
    return Timestamp(seconds * SECOND + int(fraction), offset)


def timestamp_text(moment: Timestamp) -> str:
    """RFC 3339 with as many fractional digits as needed, in the offset the timestamp was written with."""
    local = clock(moment.nanoseconds // SECOND + moment.offset)
    fraction = moment.nanoseconds % SECOND
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    zone = "Z"
    if moment.offset:
        minutes = abs(moment.offset) // 60
        zone = f"{'-' if moment.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    hour, minute, second = local.second // 3600, local.second // 60 % 60, local.second % 60
    date = f"{local.year:04d}-{local.month:02d}-{local.day:02d}"
    return f"{date}T{hour:02d}:{minute:02d}:{second:02d}{digits}{zone}"


def _in_zone(moment: Timestamp, zone: str) -> Clock:
    seconds = moment.nanoseconds // SECOND
    hours, colon, minutes = zone.partition(":")
    if colon:
        if not _NUMBER.fullmatch(hours) or not _NUMBER.fullmatch(minutes):
            raise CelFault(f"no such time zone: {zone}")
        span = int(hours) * 60 + (-int(minutes) if zone[0] == "-" else int(minutes))
        return clock(seconds + span * 60)
    if zone in ("", "UTC", "Local"):
        return clock(seconds)
    return clock(seconds + _named_offset(zone, seconds))


def _named_offset(zone: str, seconds: int) -> int:
    """Seconds east of UTC in a zone of the IANA database. Raises CelFault for an unknown name."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # few expressions have a time zone; it loads a lot

    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CelFault(f"unknown time zone {zone}") from None
    moment = _EPOCH + timedelta(seconds=max(_FIRST_OFFSET, min(_LAST_OFFSET, seconds)))
    return round((moment.astimezone(known).utcoffset() or timedelta()).total_seconds())


def _whole(unit: int) -> Callable[[Duration], Value]:
    def call(span: Duration) -> Value:
        count = abs(span.nanoseconds) // unit
        return -count if span.nanoseconds < 0 else count

    return call


_Part = Callable[[Clock, Timestamp], int]


def _parts(name: str, identifier: str, part: _Part, *, unit: int = 0, zoned: str = "") -> Library:
    """A part of a timestamp, in UTC or in a named zone; with `unit` (nanoseconds) also of a duration."""
    of_timestamp = (
        method(name, identifier, TIMESTAMP, result=INT, call=lambda moment: part(_in_zone(moment, "UTC"), moment)),
        method(
            name,
            zoned or f"{identifier}_with_tz",
            TIMESTAMP,
            STRING,
            result=INT,
            call=lambda moment, zone: part(_in_zone(moment, zone), moment),
        ),
    )
    if not unit:
        return of_timestamp
    of_duration = method(name, identifier.replace("timestamp", "duration"), DURATION, result=INT, call=_whole(unit))
    return (*of_timestamp, of_duration)


LIBRARY: Library = (
    *_parts("getFullYear", "timestamp_to_year", lambda local, _: local.year),
    *_parts("getMonth", "timestamp_to_month", lambda local, _: local.month - 1),
    *_parts("getDayOfYear", "timestamp_to_day_of_year", lambda local, _: local.year_day),
    *_parts("getDayOfMonth", "timestamp_to_day_of_month", lambda local, _: local.day - 1),
    *_parts("getDate", "timestamp_to_day_of_month_1_based", lambda local, _: local.day),
    *_parts("getDayOfWeek", "timestamp_to_day_of_week", lambda local, _: local.week_day),
    *_parts("getHours", "timestamp_to_hours", lambda local, _: local.second // 3600, unit=3600 * SECOND),
    *_parts("getMinutes", "timestamp_to_minutes", lambda local, _: local.second // 60 % 60, unit=60 * SECOND),
    *_parts(
        "getSeconds",
        "timestamp_to_seconds",
        lambda local, _: local.second % 60,
        unit=SECOND,
        zoned="timestamp_to_seconds_tz",
    ),
    *_parts(
        "getMilliseconds",
        "timestamp_to_milliseconds",
        lambda _, moment: moment.nanoseconds % SECOND // 1_000_000,
        unit=1_000_000,
    ),
)
