"""Timestamps and durations: reading and writing as Go's package time does, and their parts.

Parts of a timestamp are in UTC unless a time zone is given: a name of the IANA database, or `+hh:mm`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from scheduling.cel.functions.registry import Implementation
from scheduling.cel.moments import SECOND, Clock, clock, day_number, days_in
from scheduling.cel.types import DURATION, INT_MAX, STRING, TIMESTAMP
from scheduling.cel.values import Duration, Fault, Timestamp, Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_OFFSET, _LAST_OFFSET = -62_000_000_000, 253_000_000_000
"""Moments within what datetime can show, in seconds since 1970; before and after, the zone is as it is there."""
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
    r"(\d{4})-(\d{2})-(\d{2})T(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d+))?(?:(Z)|([+-])(\d{2}):(\d{2}))",
    re.ASCII,
)
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def parse_duration(text: str) -> int | None:
    """Nanoseconds of a text like `-1h30m` or `1.5s`, rounded down to whole ones; None when it is none."""
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
    """A timestamp in the form of RFC 3339, as leniently as Go; None when it is none."""
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
            raise Fault(f"no such time zone: {zone}")
        span = int(hours) * 60 + (-int(minutes) if zone[0] == "-" else int(minutes))
        return clock(seconds + span * 60)
    if zone in ("", "UTC", "Local"):
        return clock(seconds)
    return clock(seconds + _named_offset(zone, seconds))


def _named_offset(zone: str, seconds: int) -> int:
    """Seconds east of UTC in a zone of the IANA database. Raises Fault when there is none of that name."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # few expressions have a time zone; it loads a lot

    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Fault(f"unknown time zone {zone}") from None
    moment = _EPOCH + timedelta(seconds=max(_FIRST_OFFSET, min(_LAST_OFFSET, seconds)))
    return round((moment.astimezone(known).utcoffset() or timedelta()).total_seconds())


_Part = Callable[[Clock, Timestamp], int]

_PARTS: dict[str, tuple[str, _Part]] = {
    "getFullYear": ("timestamp_to_year", lambda local, _: local.year),
    "getMonth": ("timestamp_to_month", lambda local, _: local.month - 1),
    "getDayOfYear": ("timestamp_to_day_of_year", lambda local, _: local.year_day),
    "getDayOfMonth": ("timestamp_to_day_of_month", lambda local, _: local.day - 1),
    "getDate": ("timestamp_to_day_of_month_1_based", lambda local, _: local.day),
    "getDayOfWeek": ("timestamp_to_day_of_week", lambda local, _: local.week_day),
    "getHours": ("timestamp_to_hours", lambda local, _: local.second // 3600),
    "getMinutes": ("timestamp_to_minutes", lambda local, _: local.second // 60 % 60),
    "getSeconds": ("timestamp_to_seconds", lambda local, _: local.second % 60),
    "getMilliseconds": ("timestamp_to_milliseconds", lambda _, moment: moment.nanoseconds % SECOND // 1_000_000),
}


def _part(part: _Part) -> Callable[[Timestamp], Value]:
    return lambda moment: part(_in_zone(moment, "UTC"), moment)


def _part_in_zone(part: _Part) -> Callable[[Timestamp, str], Value]:
    return lambda moment, zone: part(_in_zone(moment, zone), moment)


def _whole(unit: int) -> Callable[[Duration], Value]:
    def call(span: Duration) -> Value:
        count = abs(span.nanoseconds) // unit
        return -count if span.nanoseconds < 0 else count

    return call


_NAMES_IN_ZONE = {"timestamp_to_seconds": "timestamp_to_seconds_tz"}
"""The one overload that is not named like the others."""

IMPLEMENTATIONS = (
    *(Implementation(name, function, (TIMESTAMP,), _part(part)) for function, (name, part) in _PARTS.items()),
    *(
        Implementation(_NAMES_IN_ZONE.get(name, f"{name}_with_tz"), function, (TIMESTAMP, STRING), _part_in_zone(part))
        for function, (name, part) in _PARTS.items()
    ),
    Implementation("duration_to_hours", "getHours", (DURATION,), _whole(3600 * SECOND)),
    Implementation("duration_to_minutes", "getMinutes", (DURATION,), _whole(60 * SECOND)),
    Implementation("duration_to_seconds", "getSeconds", (DURATION,), _whole(SECOND)),
    Implementation("duration_to_milliseconds", "getMilliseconds", (DURATION,), _whole(1_000_000)),
)
