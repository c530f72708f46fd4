"""One text as the value of an Arrow type, in plain Python: for each text that the kernels of `typed` do not settle.

A text that the type can't hold without loss has no value: a fraction for an integer, more digits than a decimal's
scale, a number that is too large for a float, a day that no calendar has, an offset for a local time. Blanks around
numbers, days and times do not count. Years are counted as Spark counts them: 1 BC, as PostgreSQL prints it, is 0.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
import zoneinfo
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = {"nan": "nan", "inf": "inf", "infinity": "inf"}
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_DAY = re.compile(r"(-?\d{4,7})-(\d{1,2})-(\d{1,2})(?:[ T]00:00:00(?:\.0+)?)?", re.ASCII)
_MOMENT = re.compile(
    r"(-?\d{4,6})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d+))?)?)?"
    r"(Z|[+-]\d{2}:?\d{2}(?::?\d{2})?|[A-Za-z][A-Za-z0-9_+/-]*)?",
    re.ASCII,
)
_BEFORE_CHRIST = " BC"
_EPOCH = dt.date(1970, 1, 1).toordinal()
_FIRST, _LAST = -(2**63), 2**63 - 1
_YEAR_ONE = (1 - _EPOCH) * 86_400
_LARGEST_EXPONENT = 6_200


def value_of(text: str, kind: pa.DataType, zone: str | None = None) -> Any:
    """The value, as `pa.array` takes it; None where the type has no value for the text.

    Args:
        text: the text.
        kind: the Arrow type of the column.
        zone: the zone of texts of an instant that say none; UTC where None.
    """
    types = pa.types
    if types.is_string(kind):
        return text
    if types.is_binary(kind):
        return bytes_of(text)
    text = text.strip()
    if types.is_boolean(kind):
        low = text.lower()
        return True if low in _TRUE else False if low in _FALSE else None
    if types.is_integer(kind):
        least, most = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
        # More digits than any integer has are none, before Python looks at them.
        value = int(text) if _INTEGER.fullmatch(text) and len(text) < 400 else None
        return value if value is not None and least <= value <= most else None
    if types.is_decimal(kind):
        return decimal_of(text, kind.precision, kind.scale)
    if types.is_floating(kind):
        return _float_of(text, kind)
    if types.is_date(kind):
        day = _DAY.fullmatch(text.removesuffix(_BEFORE_CHRIST))
        return None if day is None else days_of(_year(day[1], text), int(day[2]), int(day[3]))
    return moment_of(text, None if kind.tz is None else zone or "UTC")


def bytes_of(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def decimal_of(text: str, precision: int, scale: int) -> Decimal | None:
    """The decimal of that many digits that is equal to the number."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return None
    assert isinstance(exponent, int)
    if not any(digits):
        return Decimal((0, (0,), -scale))
    shift = exponent + scale
    if abs(exponent) > _LARGEST_EXPONENT or len(digits) + shift > precision or (shift < 0 and any(digits[shift:])):
        return None
    kept = digits + (0,) * shift if shift >= 0 else digits[:shift]
    return Decimal((sign, kept, -scale))


def _float_of(text: str, kind: pa.DataType) -> float | None:
    word = _NOT_FINITE.get(text.lstrip("+-").lower())
    if word is None and not _NUMBER.fullmatch(text.rstrip("fFdD")):
        return None
    number = text.rstrip("fFdD") if word is None else ("-" if text.startswith("-") else "") + word
    if pa.types.is_float32(kind):
        # Straight from the text: by way of a double it would be rounded twice.
        with np.errstate(over="ignore"):
            value = float(pa.array([number], pa.string()).cast(pa.float32())[0].as_py())
    else:
        value = float(number)
    return None if word is None and math.isinf(value) else value


def _year(digits: str, text: str) -> int:
    return 1 - int(digits) if text.endswith(_BEFORE_CHRIST) else int(digits)


def days_of(year: int, month: int, day: int) -> int | None:
    """Days since 1970 of any year, 0 being 1 BC; None where there is no such day."""
    # All 400 years have the same calendar.
    shifted = 2_000 + year % 400
    try:
        return dt.date(shifted, month, day).toordinal() - _EPOCH + (year - shifted) // 400 * 146_097
    except ValueError:
        return None


def moment_of(text: str, zone: str | None) -> int | None:
    """Microseconds since 1970 of a day and clock; None also for more than six digits that are not zeros.

    Args:
        text: the text, with or without an offset.
        zone: the zone of a text without offset, for instants; None for local times, which have none but `Z`.
    """
    match = _MOMENT.fullmatch(text.removesuffix(_BEFORE_CHRIST))
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    days = days_of(_year(year, text), int(month), int(day))
    clock = [int(part or 0) for part in (hour, minute, second)]
    micros, finer = (fraction or "").ljust(6, "0")[:6], (fraction or "")[6:]
    if days is None or clock[0] > 23 or clock[1] > 59 or clock[2] > 59 or finer.strip("0"):
        return None
    seconds = days * 86_400 + clock[0] * 3_600 + clock[1] * 60 + clock[2]
    ahead = offset_of_zone(seconds, offset or zone) if zone is not None else 0 if offset in (None, "Z") else None
    moment = None if ahead is None else (seconds - ahead) * 1_000_000 + int(micros)
    return moment if moment is not None and _FIRST <= moment <= _LAST else None


def _offset(text: str) -> int:
    if text in ("Z", "UTC"):
        return 0
    digits = text[1:].replace(":", "").ljust(6, "0")
    seconds = int(digits[:2]) * 3_600 + int(digits[2:4]) * 60 + int(digits[4:])
    return -seconds if text.startswith("-") else seconds


def offset_of_zone(local: int, zone: str) -> int | None:
    """Seconds that a zone is ahead of UTC at a local time (seconds since 1970); None where nobody knows the zone.

    Of a time that is twice, the first is meant.
    """
    if zone in ("Z", "UTC") or zone[:1] in "+-":
        return _offset(zone)
    try:
        # No zone had rules before the years that Python has, and none after them is known.
        moment = dt.datetime.min if local < _YEAR_ONE else dt.datetime(1970, 1, 1) + dt.timedelta(seconds=local)
        ahead = moment.replace(tzinfo=zoneinfo.ZoneInfo(zone)).utcoffset()
    except OverflowError:
        return None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None
    return 0 if ahead is None else int(ahead.total_seconds())
