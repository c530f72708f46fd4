"""Numbers and moments as the log packs them, read one by one in plain Python: the specification of the kernels.

Each function takes exactly the bytes of one value, and raises ValueError where they are none.
"""

from __future__ import annotations

import datetime as dt

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""How many bytes a group of so many decimal digits takes."""
_EPOCH = dt.datetime(1970, 1, 1)


class Reader:
    """Reads bytes from a position on, never beyond an end.

    Args:
        data: the bytes.
        position: where it begins.
        end: where it ends.
    """

    def __init__(self, data: bytes, position: int, end: int) -> None:
        if not 0 <= position <= end <= len(data):
            raise ValueError("a value begins or ends outside of what holds it")
        self.position = position
        self._data = data
        self._end = end

    @property
    def at_end(self) -> bool:
        return self.position == self._end

    def take(self, size: int) -> bytes:
        if size > self._end - self.position:
            raise ValueError("a value is cut off")
        self.position += size
        return self._data[self.position - size : self.position]

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self, size: int) -> int:
        """A little-endian number of so many bytes."""
        return int.from_bytes(self.take(size), "little")

    def packed(self) -> int:
        """A number in one byte, or in 2, 3 or 8 behind one that says so."""
        first = self.byte()
        if first < 251:
            return first
        if first in (252, 253, 254):
            return self.number({252: 2, 253: 3, 254: 8}[first])
        raise ValueError("a number has a length that is none")


def decimal_size(precision: int, scale: int) -> int:
    """How many bytes a DECIMAL takes."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def decimal_text(data: bytes, precision: int, scale: int) -> str:
    if not 0 <= scale <= precision or len(data) != decimal_size(precision, scale) or not data:
        raise ValueError("a decimal has another size than its digits need")
    negative = data[0] < 0x80
    data = bytes([data[0] ^ 0x80, *data[1:]])
    if negative:
        data = bytes(byte ^ 0xFF for byte in data)
    whole = precision - scale
    rest, after = ([digits % 9] if digits % 9 else [] for digits in (whole, scale))
    groups = [*rest, *[9] * (whole // 9 + scale // 9), *after]
    reader, digits = Reader(data, 0, len(data)), ""
    for size in groups:
        number = int.from_bytes(reader.take(_DIGIT_BYTES[size]), "big")
        if number >= 10**size:
            raise ValueError("a decimal has a group of digits that is too large")
        digits += f"{number:0{size}}"
    text = digits[:whole].lstrip("0") or "0"
    if scale:
        text += f".{digits[whole:]}"
    return f"-{text}" if negative and digits.strip("0") else text


def fraction_size(digits: int) -> int:
    """How many bytes the fraction of a second takes."""
    return (digits + 1) // 2


def fraction_text(fraction: int, digits: int) -> str:
    """The fraction of a second with the point, of its packed number."""
    width = 2 * fraction_size(digits)
    if fraction >= 10**width:
        raise ValueError("a fraction of a second is too large")
    text = f"{fraction:0{width}}" if width else ""
    if text[digits:].strip("0"):
        raise ValueError("a fraction of a second has more digits than its column")
    return f".{text[:digits]}" if digits else ""


def clock_text(hour: int, minute: int, second: int) -> str:
    if minute > 59 or second > 59:
        raise ValueError("a clock has a minute or a second above 59")
    return f"{hour:02}:{minute:02}:{second:02}"


def day_text(year: int, month: int, day: int) -> str:
    if year > 9999 or month > 12 or day > 31:
        raise ValueError("a date is out of range")
    return f"{year:04}-{month:02}-{day:02}"


def moment_text(packed: int, fraction: int, digits: int) -> str:
    """A DATETIME: 17 bits of year and month, 5 of the day, 5, 6 and 6 of the clock."""
    if packed < 0:
        raise ValueError("a datetime is negative")
    months, day, hour = packed >> 22, packed >> 17 & 31, packed >> 12 & 31
    if hour > 23:
        raise ValueError("an hour is above 23")
    clock = clock_text(hour, packed >> 6 & 63, packed & 63)
    return f"{day_text(months // 13, months % 13, day)} {clock}{fraction_text(fraction, digits)}"


def time_text(packed: int, fraction: int, digits: int, *, negative: bool) -> str:
    """A TIME without its sign: hours, 6 bits of minutes, 6 of seconds."""
    hours = packed >> 12
    if hours > 838:
        raise ValueError("a time has more than 838 hours")
    clock = clock_text(hours, packed >> 6 & 63, packed & 63)
    return f"{'-' if negative else ''}{clock}{fraction_text(fraction, digits)}"


def instant_text(seconds: int, fraction: int, digits: int) -> str:
    """A TIMESTAMP: seconds since 1970, of which 0 without a fraction is the zero date."""
    shown = fraction_text(fraction, digits)
    if seconds == 0 and fraction == 0:
        return f"0000-00-00T00:00:00{shown}Z"
    return f"{(_EPOCH + dt.timedelta(seconds=seconds)).isoformat(timespec='seconds')}{shown}Z"
