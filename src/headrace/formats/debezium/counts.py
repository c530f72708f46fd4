"""Canonical texts of dates, times and intervals as the counts that Debezium writes; None where a text does not fit.

Source: Debezium's documentation (temporal types); recorded events of the PostgreSQL and MariaDB connectors 3.0.8 for
infinite timestamps and times beyond a day.
"""

from __future__ import annotations

import re

from headrace.wire.typed_exact import days_of

_FIRST, _LAST = -(2**63), 2**63 - 1
_DATE = re.compile(r"\s*([+-]?[0-9]{4,7})-([0-9]{1,2})-([0-9]{1,2})(?:[ T].*)?\s*", re.S)
_TIMESTAMP = re.compile(
    r"\s*([+-]?[0-9]{4,6})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?\s*"
)
_TIME = re.compile(r"(-?)([0-9]{1,6}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?")
# What PostgreSQL's infinite timestamps became on the wire, in milliseconds, and its infinite dates, in days.
_INFINITE = {"infinity": 9223372036825200, "-infinity": -9223372036832400}
_INFINITE_DATES = {"infinity": -2147472692, "-infinity": -2147472691}
_BEFORE_CHRIST = " BC"
MONTH = 2_629_800_000_000
"""Microseconds of a twelfth of 365.25 days, by which Debezium counts months."""
DAY = 86_400_000_000
_N = "-?[0-9]{1,9}"
_ISO = re.compile(rf"([+-]?)P(?=.*?)((?:{_N}[YMWD])*)(?:T((?:{_N}(?:\.[0-9]*)?[HMS])*))?")
_MONTHS = re.compile(r"([+-]?)([0-9]{1,9})-([0-9]{1,9})")
_CLOCK = re.compile(r"([+-]?)([0-9]{1,6}) ([0-9]{1,9}):([0-9]{1,9}):([0-9]{1,9})(?:\.([0-9]+))?")


def of_date(text: str) -> int | None:
    """Days since 1970."""
    if text in _INFINITE_DATES:
        return _INFINITE_DATES[text]
    found = _DATE.fullmatch(text.removesuffix(_BEFORE_CHRIST))
    return None if found is None else days_of(_year(found[1], text), int(found[2]), int(found[3]))


def of_timestamp(text: str, digits: int) -> int | None:
    """Units of so many fraction digits since 1970 of a local timestamp; what is finer is cut off."""
    if text in _INFINITE:
        return _INFINITE[text] * 10 ** (digits - 3) if digits < 9 else None
    moment = _moment(text)
    if moment is None:
        return None
    count = moment // 10 ** (9 - digits)
    return count if _FIRST <= count <= _LAST else None


def nearest_timestamp(text: str) -> int | None:
    """The nearest count of nanoseconds for a timestamp beyond their range; None if the text is not a timestamp."""
    if text in _INFINITE:
        return _LAST if _INFINITE[text] > 0 else _FIRST
    moment = _moment(text)
    return None if moment is None else _LAST if moment > 0 else _FIRST


def is_timestamp(text: str) -> bool:
    """Whether a text is a local timestamp, of any year."""
    return text in _INFINITE or _moment(text) is not None


def of_time(text: str, digits: int) -> int | None:
    """Units of a time, which may be negative or longer than a day; those of milliseconds are of 32 bits."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    sign, hours, minutes, seconds, fraction = found.groups()
    nanos = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 10**9 + int((fraction or "").ljust(9, "0"))
    count = nanos // 10 ** (9 - digits) * (-1 if sign else 1)
    return None if digits == 3 and not -(2**31) <= count < 2**31 else count


def of_interval(text: str) -> int | None:
    """Microseconds of an interval, a month being a twelfth of 365.25 days.

    Read are ISO 8601 (`P1Y2M3DT4H5M6.789S`), Oracle's two forms (`+01-06`, `+03 04:05:06.789`) and a count of
    microseconds itself.
    """
    count = _interval(text)
    return count if count is not None and _FIRST <= count <= _LAST else None


def _interval(text: str) -> int | None:
    if re.fullmatch(r"-?[0-9]{1,40}", text):
        return int(text)
    months, clock, iso = _MONTHS.fullmatch(text), _CLOCK.fullmatch(text), _ISO.fullmatch(text)
    if months is not None:
        return _signed(months[1], (int(months[2]) * 12 + int(months[3])) * MONTH)
    if clock is not None:
        days, hours, minutes, seconds = (int(part) for part in clock.groups()[1:5])
        count = days * DAY + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
        return _signed(clock[1], count + int((clock[6] or "")[:6].ljust(6, "0")))
    return None if iso is None else _signed(iso[1], _iso(iso[2] or "", iso[3] or ""))


def _iso(date_part: str, clock: str) -> int:
    def part(text: str, letter: str) -> int:
        found = re.search(rf"(-?[0-9]+)(?:\.[0-9]*)?{letter}", text)
        return 0 if found is None else int(found[1])

    count = (part(date_part, "Y") * 12 + part(date_part, "M")) * MONTH
    count += part(date_part, "W") * 7 * DAY + part(date_part, "D") * DAY
    count += ((part(clock, "H") * 60 + part(clock, "M")) * 60 + part(clock, "S")) * 1_000_000
    below = re.search(r"(-?)[0-9]+\.([0-9]{1,6})[0-9]*S", clock)
    return count if below is None else count + _signed(below[1], int(below[2].ljust(6, "0")))


def _signed(sign: str, number: int) -> int:
    return -number if sign == "-" else number


def _moment(text: str) -> int | None:
    """Nanoseconds since 1970."""
    found = _TIMESTAMP.fullmatch(text.removesuffix(_BEFORE_CHRIST))
    if found is None:
        return None
    days = days_of(_year(found[1], text), int(found[2]), int(found[3]))
    hour, minute, second = (int(found[n] or 0) for n in (4, 5, 6))
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 10**9 + int((found[7] or "")[:9].ljust(9, "0"))


def _year(digits: str, text: str) -> int:
    """The year, counted from 0, which is 1 BC."""
    return 1 - int(digits) if text.endswith(_BEFORE_CHRIST) else int(digits)
