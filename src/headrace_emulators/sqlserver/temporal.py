"""Dates and times as SQL Server keeps them, as text that sorts.

A moment is (days since 0001-01-01, 100-nanosecond ticks of the day, offset in minutes or None); texts are
`YYYY-MM-DD HH:MM:SS.fffffff +hh:mm`, cut or rounded to what a type holds.
"""

from __future__ import annotations

import datetime as dt
import re

Moment = tuple[int, int, int | None]

DAY = 864_000_000_000
_TEXT = re.compile(
    r"\s*(?:(\d{4})-(\d{1,2})-(\d{1,2})|(\d{4})(\d{2})(\d{2})(?=$|[ T]))?"
    r"(?:[ T]*(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?\s*(Z|[+-]\d{2}:\d{2})?\s*",
)
_BASE = dt.date(1900, 1, 1).toordinal()


def parse(text: str) -> Moment:
    """Read ISO forms, with `T` or a blank, with or without date, time and offset.

    Raises:
        ValueError: it is none, or no day of the calendar.
    """
    found = _TEXT.fullmatch(text)
    if found is None or not text.strip():
        raise ValueError("no date or time")
    year, month, day, year8, month8, day8, hour, minute, second, fraction, zone = found.groups()
    if year is None:
        year, month, day = year8, month8, day8
    days = dt.date(int(year), int(month), int(day)).toordinal() if year else _BASE
    ticks = 0
    if hour:
        h, m, s = int(hour), int(minute), int(second or 0)
        if h > 23 or m > 59 or s > 59:
            raise ValueError("no time of day")
        ticks = ((h * 60 + m) * 60 + s) * 10_000_000
        if fraction:
            ticks += round(int(fraction.ljust(9, "0")) / 100) if len(fraction) > 7 else int(fraction.ljust(7, "0"))
    offset = None
    if zone:
        offset = 0 if zone == "Z" else (int(zone[1:3]) * 60 + int(zone[4:6])) * (-1 if zone[0] == "-" else 1)
    return days, ticks, offset


def of_datetime(value: dt.datetime) -> str:
    """The text of a Python datetime, with its offset if it has one."""
    offset = value.utcoffset()
    text = value.replace(tzinfo=None).isoformat(" ")
    return text if offset is None else f"{text} {zone_text(round(offset.total_seconds() / 60))}"


def zone_text(minutes: int) -> str:
    """`+09:00` of 540."""
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def rounded(days: int, ticks: int, scale: int) -> tuple[int, int]:
    """Half up to `scale` fraction digits, with the carry into the next day."""
    unit = int(10 ** (7 - scale))
    ticks = (ticks + unit // 2) // unit * unit
    return days + ticks // DAY, ticks % DAY


def clock_text(ticks: int, scale: int) -> str:
    """`HH:MM:SS[.f]`."""
    seconds, fraction = divmod(ticks, 10_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:07d}"[: 9 + scale] if scale else text


def date_text(days: int) -> str:
    """`YYYY-MM-DD`; raises ValueError outside of the years 1 to 9999."""
    return dt.date.fromordinal(days).isoformat()


def to_text(moment: Moment, kind: str, scale: int) -> str:
    """The stored text of a moment as a type holds it.

    Args:
        moment: what to write; without offset a datetimeoffset is in UTC.
        kind: date, time, datetime, smalldatetime, datetime2 or datetimeoffset.
        scale: fraction digits, where the type has them.

    Raises:
        ValueError: the type does not reach so far.
    """
    days, ticks, offset = moment
    if kind == "date":
        return date_text(days)
    if kind == "time":
        # A time that rounds up to midnight stays in its day, unlike a timestamp.
        _, kept = rounded(0, ticks, scale)
        return clock_text(kept if kept or not ticks or ticks < DAY // 2 else DAY - int(10 ** (7 - scale)), scale)
    if kind == "datetime":
        days, ticks = _three_hundredths(days, ticks)
        if days < _DATETIME_FIRST:
            raise ValueError("before 1753")
        return f"{date_text(days)} {clock_text(ticks, 3)}"
    if kind == "smalldatetime":
        minutes = (ticks + 300_000_000) // 600_000_000
        days, ticks = days + minutes // 1440, minutes % 1440 * 600_000_000
        if not _SMALL_FIRST <= days <= _SMALL_LAST:
            raise ValueError("outside of 1900 to 2079")
        return f"{date_text(days)} {clock_text(ticks, 0)}"
    days, ticks = rounded(days, ticks, scale)
    text = f"{date_text(days)} {clock_text(ticks, scale)}"
    return text if kind == "datetime2" else f"{text} {zone_text(offset or 0)}"


_DATETIME_FIRST = dt.date(1753, 1, 1).toordinal()
_SMALL_FIRST, _SMALL_LAST = dt.date(1900, 1, 1).toordinal(), dt.date(2079, 6, 6).toordinal()


def _three_hundredths(days: int, ticks: int) -> tuple[int, int]:
    units = (ticks * 3 + 50_000) // 100_000
    days, units = days + units // 25_920_000, units % 25_920_000
    seconds, rest = divmod(units, 300)
    return days, seconds * 10_000_000 + (rest * 10 + 1) // 3 * 10_000


def instant(text: str) -> tuple[int, int]:
    """What a datetimeoffset is ordered by: its day and ticks in UTC."""
    days, ticks, offset = parse(text)
    moved = days * DAY + ticks - (offset or 0) * 600_000_000
    return moved // DAY, moved % DAY
