"""How single values are written in JSON as Debezium and Java write them: counts of times, decimals as bytes, numbers.

Each kernel takes a canonical text and says where what it wrote ends; -1 for a text that it leaves to the caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.wire.compiled import kernel
from headrace.wire.json_columns import DAY, TIME
from headrace.wire.names import as_data
from headrace.wire.spans import Array, U, byte, copy, put_integer, same
from headrace.wire.typed import day_of

NO_COUNT = np.int64(-(2**62))
"""What `count_of` gives for a text that it leaves."""

_SIXTY_FOUR = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_TRUE, _FALSE = as_data(b"true"), as_data(b"false")
_LONGEST = np.array([10**n for n in range(19)], np.int64)


@kernel
def _digits(data: Array, i: Any, j: Any) -> Any:
    """The number that at most 18 digits mean; -1 for none, and for more."""
    if i >= j or j - i > 18:
        return np.int64(-1)
    v = np.int64(0)
    while i < j:
        d = np.int64(byte(data, i)) - 48
        if d < 0 or d > 9:
            return np.int64(-1)
        v = v * 10 + d
        i += 1
    return v


@kernel
def is_whole(data: Array, i: Any, j: Any, bits: Any) -> Any:
    """Whether a text is an integer that fits into so many bits, without zeros in front."""
    negative = i < j and byte(data, i) == 45
    k = i + 1 if negative else i
    v = _digits(data, k, j)
    if v < 0 or (byte(data, k) == 48 and (negative or j - k > 1)):
        return False
    most = np.int64(9223372036854775807)
    if bits < 64:
        most = (np.int64(1) << np.int64(bits - 1)) - 1
    return v <= most + 1 if negative and bits < 64 else v <= most


@kernel
def is_boolean(data: Array, i: Any, j: Any) -> Any:
    """Whether a text is `true` or `false`."""
    return (j - i == 4 and same(_TRUE, 0, data, i, 4)) or (j - i == 5 and same(_FALSE, 0, data, i, 5))


@kernel
def is_float(data: Array, i: Any, j: Any, most: Any) -> Any:
    """Whether a text is written as Java does: from 0.001 up to 10,000,000, digits that say something, and a point."""
    if i < j and byte(data, i) == 45:
        i += 1
    k = i
    while k < j and 48 <= byte(data, k) <= 57:
        k += 1
    whole = k - i
    if whole < 1 or whole > 7 or k + 1 >= j or byte(data, k) != 46 or (byte(data, i) == 48 and whole > 1):
        return False
    fraction = j - k - 1
    if whole + fraction > most or (byte(data, j - 1) == 48 and fraction > 1):
        return False
    large = byte(data, i) != 48
    first = k + 1
    k = first
    while k < j:
        b = byte(data, k)
        if b < 48 or b > 57:
            return False
        if b != 48 and k < first + 3:
            large = True
        k += 1
    return large or (fraction == 1 and byte(data, first) == 48)


@kernel
def put_float(out: Array, o: Any, data: Array, i: Any, j: Any, most: Any) -> Any:
    """A number of at most so many digits as Java writes it: with an exponent beyond 0.001 and 10,000,000; -1 for what
    is none, and for the very small and large, whose digits may not be the fewest that tell them."""
    if i < j and byte(data, i) == 45:
        out[U(o)] = 45
        o += 1
        i += 1
    # The first and the last digit that is not a zero, and how many digits stand in front of the point.
    first, last, point, k = np.int64(-1), np.int64(-1), np.int64(-1), i
    while k < j and (48 <= byte(data, k) <= 57 or (byte(data, k) == 46 and point < 0)):
        if byte(data, k) == 46:
            point = k - i
        elif byte(data, k) != 48:
            first, last = k if first < 0 else first, k
        k += 1
    whole = k - i if point < 0 else point
    if whole < 1 or point == k - i - 1 or (byte(data, i) == 48 and whole > 1):
        return np.int64(-1)
    if first < 0:
        return _put_digits(out, o, data, 0, 0, 1) if k == j else np.int64(-1)
    # The number is 0.digits times ten to the power of `ahead`.
    ahead = whole - (first - i) + (1 if first - i > whole else 0)
    if k < j:
        if byte(data, k) != 69 and byte(data, k) != 101:
            return np.int64(-1)
        k += 1
        negative = k < j and byte(data, k) == 45
        if k < j and (negative or byte(data, k) == 43):
            k += 1
        exponent = _digits(data, k, j) if j - k <= 3 else np.int64(-1)
        if exponent < 0:
            return np.int64(-1)
        ahead += -exponent if negative else exponent
    digits = last - first + (0 if first - i < point < last - i else 1)
    if digits > most or ahead < -30 or ahead > 38:
        return np.int64(-1)
    if -3 < ahead <= 7:
        return _put_digits(out, o, data, first, last + 1, ahead)
    o = _put_digits(out, o, data, first, last + 1, 1)
    out[U(o)] = 69
    return put_integer(out, o + 1, ahead - 1)


@kernel
def _put_digits(out: Array, o: Any, data: Array, i: Any, j: Any, ahead: Any) -> Any:
    """Digits, with a point behind so many of them and not where it was, and a digit at least on both of its sides."""
    if ahead <= 0:
        out[U(o)], out[U(o + 1)] = 48, 46
        o += 2
        for _ in range(-ahead):
            out[U(o)] = 48
            o += 1
    left = ahead
    while i < j or left > 0:
        c = byte(data, i) if i < j else np.uint8(48)
        i += 1
        if c != 46:
            out[U(o)] = c
            o += 1
            left -= 1
            if left == 0:
                out[U(o)] = 46
                o += 1
    if byte(out, o - 1) == 46:
        out[U(o)] = 48
        o += 1
    return o


@kernel
def put_decimal(out: Array, o: Any, data: Array, i: Any, j: Any, scale: Any) -> Any:
    """The bytes of a decimal of at most 18 digits, that has exactly the scale's; -1 for any other."""
    negative = i < j and byte(data, i) == 45
    if negative:
        i += 1
    v = np.int64(0)
    if scale > 0:
        point = j - scale - 1
        if point <= i or byte(data, point) != 46 or j - i - 1 > 18:
            return np.int64(-1)
        high, low = _digits(data, i, point), _digits(data, point + 1, j)
        if high < 0 or low < 0:
            return np.int64(-1)
        v = high * _LONGEST[U(scale)] + low
    else:
        v = _digits(data, i, j)
        if v < 0:
            return np.int64(-1)
    if negative:
        v = -v
    size = 1
    while size < 8 and not (-(np.int64(1) << np.int64(8 * size - 1)) <= v < (np.int64(1) << np.int64(8 * size - 1))):
        size += 1
    out[U(o)] = 34
    o += 1
    left = size
    while left > 0:
        taken = min(left, 3)
        w = np.int64(0)
        for k in range(taken):
            w = (w << np.int64(8)) | ((v >> np.int64(8 * (left - 1 - k))) & np.int64(255))
        w <<= np.int64(8 * (3 - taken))
        for k in range(4):
            out[U(o + k)] = _SIXTY_FOUR[U((w >> np.int64(18 - 6 * k)) & np.int64(63))] if k <= taken else np.uint8(61)
        o += 4
        left -= taken
    out[U(o)] = 34
    return o + 1


@kernel
def count_of(data: Array, i: Any, j: Any, code: Any, unit: Any) -> Any:
    """The count of a day, a time or a local timestamp in its ordinary text form; `NO_COUNT` for any other."""
    if code == TIME:
        return _time_count(data, i, j, unit)
    if j - i < 10:
        return NO_COUNT
    day = np.int64(day_of(data, i))
    if day == NO_COUNT or code == DAY:
        return day if j - i == 10 else NO_COUNT
    if j - i < 19 or byte(data, i + 10) != 32 or byte(data, i + 13) != 58:
        return NO_COUNT
    if _digits(data, i + 11, i + 13) > 23 or _digits(data, i + 14, i + 16) > 59 or _digits(data, i + 17, i + 19) > 59:
        return NO_COUNT
    clock = _time_count(data, i + 11, j, unit)
    per = _LONGEST[U(unit)]
    # Nanoseconds are few: what is near their end is left.
    if clock == NO_COUNT or (unit == 9 and (day < -106750 or day > 106750)):
        return NO_COUNT
    return day * 86400 * per + clock


@kernel
def _time_count(data: Array, i: Any, j: Any, unit: Any) -> Any:
    negative = i < j and byte(data, i) == 45
    if negative:
        i += 1
    k = i
    while k < j and 48 <= byte(data, k) <= 57:
        k += 1
    if k - i < 2 or k - i > 6 or j - k < 6 or byte(data, k) != 58 or byte(data, k + 3) != 58:
        return NO_COUNT
    h, m, s = _digits(data, i, k), _digits(data, k + 1, k + 3), _digits(data, k + 4, k + 6)
    if m < 0 or s < 0:
        return NO_COUNT
    nanos = np.int64(0)
    if j - k > 6:
        size = j - k - 7
        if byte(data, k + 6) != 46 or size > 9:
            return NO_COUNT
        nanos = _digits(data, k + 7, j)
        if nanos < 0:
            return NO_COUNT
        nanos *= _LONGEST[U(9 - size)]
    count = (h * 3600 + m * 60 + s) * _LONGEST[U(unit)] + nanos // _LONGEST[U(9 - unit)]
    return -count if negative else count


@kernel
def put_zoned(out: Array, o: Any, data: Array, i: Any, j: Any) -> Any:
    """`YYYY-MM-DDTHH:MM:SS.f` and a zone, without the zeros that end the fraction; -1 for any other."""
    if j - i < 20:
        return np.int64(-1)
    for k in range(i, j):
        b = byte(data, k)
        if b < 32 or b > 126 or b == 34 or b == 92:
            return np.int64(-1)
    k = i + 19
    last = k
    if byte(data, k) == 46:
        k += 1
        while k < j and 48 <= byte(data, k) <= 57:
            if byte(data, k) != 48:
                last = k + 1
            k += 1
    if k >= j or not (byte(data, k) == 90 or byte(data, k) == 43 or byte(data, k) == 45):
        return np.int64(-1)
    if byte(data, k) == 90 and k + 1 != j:
        return np.int64(-1)
    for n in range(k + 1, j):
        if not (48 <= byte(data, n) <= 58):
            return np.int64(-1)
    out[U(o)] = 34
    o = copy(out, o + 1, data, i, last - i)
    o = copy(out, o, data, k, j - k)
    out[U(o)] = 34
    return o + 1


@kernel
def put_capitals(out: Array, o: Any, data: Array, i: Any, j: Any) -> Any:
    """A text in capitals, of letters, digits and what stands between them; -1 for any other."""
    out[U(o)] = 34
    o += 1
    while i < j:
        b = byte(data, i)
        if b < 32 or b > 126 or b == 34 or b == 92:
            return np.int64(-1)
        out[U(o)] = b - 32 if 97 <= b <= 122 else b
        o += 1
        i += 1
    out[U(o)] = 34
    return o + 1
