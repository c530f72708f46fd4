"""How texts are written: which are integers or numbers, and the parts of days and clocks. Nothing is converted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.wire.arrays import text_view
from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, byte

_PARTS = 13
_IS, _HAS_DAY, _YEAR, _MONTH, _DAY, _HAS_CLOCK, _SIGN, _HOUR, _MINUTE, _SECOND, _DIGITS, _NANOS, _ZONE = range(_PARTS)


def integers(texts: pa.StringArray, at: Array) -> Array:
    """Which of the texts with these numbers are digits, with a sign in front or without."""
    is_integer = np.empty(at.size, np.bool_)
    view = text_view(texts)
    _fill_numbers(view.data, view.offsets, at, False, is_integer)
    return is_integer


def numbers(texts: pa.StringArray, at: Array) -> Array:
    """Which of them are digits with at most one point, and an exponent or none."""
    is_number = np.empty(at.size, np.bool_)
    view = text_view(texts)
    _fill_numbers(view.data, view.offsets, at, True, is_number)
    return is_number


@dataclass(frozen=True)
class Moments:
    """The parts of texts that are a day (`[-]YYYY-MM-DD`), a clock (`[-]HH:MM:SS[.f]`), or both, and a zone or none.

    Between day and clock stands a blank or a T; years have four to nine digits, hours two to nine, fractions at most
    nine. A zone is `Z`, `+HH:MM` or `+HHMM`. Whether there is such a day or clock is not looked at. Where a text has no
    such part, it is 0.
    """

    parts: Array

    @property
    def fine(self) -> Array:
        return self.parts[:, _IS] != 0

    @property
    def has_day(self) -> Array:
        return self.parts[:, _HAS_DAY] != 0

    @property
    def has_clock(self) -> Array:
        return self.parts[:, _HAS_CLOCK] != 0

    @property
    def day(self) -> Array:
        """Year, month and day, a column for each."""
        return self.parts[:, _YEAR : _DAY + 1]

    @property
    def sign(self) -> Array:
        """-1 for clocks with a minus, else 1."""
        return self.parts[:, _SIGN]

    @property
    def clock(self) -> Array:
        """Hour, minute and second, without the sign."""
        return self.parts[:, _HOUR : _SECOND + 1]

    @property
    def digits(self) -> Array:
        return self.parts[:, _DIGITS]

    @property
    def nanos(self) -> Array:
        return self.parts[:, _NANOS]

    @property
    def zone(self) -> Array:
        """How long the zone is, which stands at the end."""
        return self.parts[:, _ZONE]


def moments(texts: pa.StringArray, at: Array) -> Moments:
    parts = np.zeros((at.size, _PARTS), np.int32)
    view = text_view(texts)
    _fill_moments(view.data, view.offsets, at, parts)
    return Moments(parts)


@kernel
def _fill_numbers(data: Array, offsets: Array, at: Array, points: Any, is_number: Array) -> None:
    for r in range(at.size):
        i, end = np.int64(offsets[at[r]]), np.int64(offsets[at[r] + 1])
        if i < end and (byte(data, i) == 43 or byte(data, i) == 45):
            i += 1
        after = _after_digits(data, i, end)
        count = after - i
        i = after
        if points and i < end and byte(data, i) == 46:
            after = _after_digits(data, i + 1, end)
            count += after - i - 1
            i = after
        if points and count > 0 and i < end and (byte(data, i) == 69 or byte(data, i) == 101):
            i += 1
            if i < end and (byte(data, i) == 43 or byte(data, i) == 45):
                i += 1
            after = _after_digits(data, i, end)
            if after == i:
                count = 0
            i = after
        is_number[r] = count > 0 and i == end


@kernel
def _after_digits(data: Array, i: Any, end: Any) -> Any:
    while i < end and 48 <= byte(data, i) <= 57:
        i += 1
    return i


@kernel
def _number(data: Array, i: Any, end: Any) -> Any:
    v = np.int64(0)
    while i < end:
        v = v * 10 + (np.int64(byte(data, i)) - 48)
        i += 1
    return v


@kernel
def _fill_moments(data: Array, offsets: Array, at: Array, parts: Array) -> None:
    for r in range(at.size):
        _read_moment(data, np.int64(offsets[at[r]]), np.int64(offsets[at[r] + 1]), parts[r])


@kernel
def _read_moment(data: Array, i: Any, end: Any, parts: Array) -> None:
    j = i
    sign = np.int64(byte(data, j)) if j < end else np.int64(0)
    if sign == 43 or sign == 45:
        j += 1
    after = _after_digits(data, j, end)
    parts[_SIGN] = 1
    if after < end and byte(data, after) == 45:
        if after - j < 4 or after - j > 9:
            return
        year = _number(data, j, after)
        month = after + 1
        if not _two(data, month, end) or month + 2 >= end or byte(data, month + 2) != 45:
            return
        if not _two(data, month + 3, end):
            return
        parts[_YEAR] = -year if sign == 45 else year
        parts[_MONTH] = _number(data, month, month + 2)
        parts[_DAY] = _number(data, month + 3, month + 5)
        parts[_HAS_DAY] = 1
        i = month + 5
        if i < end and (byte(data, i) == 32 or byte(data, i) == 84):
            i = _read_clock(data, i + 1, end, parts)
    else:
        i = _read_clock(data, i, end, parts)
    if i >= 0:
        parts[_IS] = 1 if _is_zone(data, i, end) else 0
        parts[_ZONE] = end - i


@kernel
def _read_clock(data: Array, i: Any, end: Any, parts: Array) -> Any:
    """The index after a clock; -1 where there is none."""
    if i < end and byte(data, i) == 45:
        parts[_SIGN] = -1
        i += 1
    after = _after_digits(data, i, end)
    if after - i < 2 or after - i > 9 or after >= end or byte(data, after) != 58:
        return np.int64(-1)
    parts[_HOUR] = _number(data, i, after)
    i = after + 1
    if not _two(data, i, end) or i + 2 >= end or byte(data, i + 2) != 58 or not _two(data, i + 3, end):
        return np.int64(-1)
    parts[_MINUTE] = _number(data, i, i + 2)
    parts[_SECOND] = _number(data, i + 3, i + 5)
    parts[_HAS_CLOCK] = 1
    i += 5
    if i < end and byte(data, i) == 46:
        after = _after_digits(data, i + 1, end)
        digits = after - i - 1
        if digits < 1 or digits > 9:
            return np.int64(-1)
        nanos = _number(data, i + 1, after)
        for _ in range(9 - digits):
            nanos *= 10
        parts[_DIGITS] = digits
        parts[_NANOS] = nanos
        i = after
    return i


@kernel
def _two(data: Array, i: Any, end: Any) -> Any:
    """Whether two digits stand here."""
    return i + 2 <= end and 48 <= byte(data, i) <= 57 and 48 <= byte(data, i + 1) <= 57


@kernel
def _is_zone(data: Array, i: Any, end: Any) -> Any:
    """Whether a zone stands at the end, or nothing."""
    if i == end or (i + 1 == end and byte(data, i) == 90):
        return True
    if byte(data, i) != 43 and byte(data, i) != 45:
        return False
    last = i + 4 if i + 3 < end and byte(data, i + 3) == 58 else i + 3
    return _two(data, i + 1, end) and _two(data, last, end) and last + 2 == end
