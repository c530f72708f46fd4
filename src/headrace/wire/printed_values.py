"""What PostgreSQL prints of moments, bytes, arrays and hstore, in our text form.

Kernels write the ordinary value. What is of another form they leave, or name its rows, for who calls to write it one by
one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.wire.arrays import mask_bitmap, own_view, text_array
from headrace.wire.compiled import kernel
from headrace.wire.spans import HEX, SIXTY_FOUR, Array, U, byte, copy

DAY_AND_CLOCK, CLOCK = 19, 8
"""How many characters `2026-01-02 03:04:05` and `03:04:05` have."""


_OPENED, _DELIMITER, _ITEM = range(3)
"""What the last part of an array was."""


class PrintedTexts(NamedTuple):
    """A column in our text form; the rows that were left have empty texts."""

    texts: pa.StringArray
    left: Array


def moment_texts(values: pa.StringArray, fixed: int, digits: int, *, zoned: bool = False) -> pa.StringArray:
    """Times and timestamps with all their fraction digits; those of other forms stay.

    Args:
        values: printed ones, such as `2026-01-02 03:04:05.1`.
        fixed: `CLOCK` or `DAY_AND_CLOCK`.
        digits: how many a fraction has.
        zoned: whether `+00` stands at the end: then `T` and `Z` are written.
    """
    view, present = own_view(values), _present(values)
    offsets = np.empty(len(values) + 1, np.int32)
    out = np.empty(int(view.offsets[-1]) + len(values) * (digits + 1), np.uint8)
    _write_moments(view.data, view.offsets, present, fixed, digits, zoned, offsets, out)
    return text_array(offsets, out, mask_bitmap(present))


def base64_of_hex(values: pa.StringArray, skip: int) -> pa.StringArray:
    """Base64 of bytes that are printed in hex digits.

    Args:
        values: the digits.
        skip: how many characters stand in front of them.

    Raises:
        ValueError: a value has other characters.
    """
    view, present = own_view(values), _present(values)
    offsets = np.empty(len(values) + 1, np.int32)
    out = np.empty(int(view.offsets[-1]) * 2 // 3 + 4 * len(values), np.uint8)
    if not _write_base64(view.data, view.offsets, present, skip, offsets, out):
        raise ValueError("bytes are not printed in hex digits")
    return text_array(offsets, out, mask_bitmap(present))


def array_texts(values: pa.StringArray, delimiter: str, *, quoted: bool) -> PrintedTexts:
    """Arrays of any dimensions as JSON.

    Left are those with bounds of their own, and with control characters.

    Args:
        values: printed ones, such as `{a,NULL,"b c"}`.
        delimiter: what stands between elements.
        quoted: whether elements are strings in JSON; else numbers.
    """
    view, present = own_view(values), _present(values)
    offsets, left = np.empty(len(values) + 1, np.int32), np.zeros(len(values), np.bool_)
    # Where quotes come around elements, the shortest of them grow to twice their size.
    out = np.empty(3 * int(view.offsets[-1]), np.uint8)
    _write_arrays(view.data, view.offsets, present, ord(delimiter), quoted, offsets, out, left)
    return PrintedTexts(text_array(offsets, out, mask_bitmap(present)), np.flatnonzero(left))


def hstore_texts(values: pa.StringArray) -> PrintedTexts:
    """hstore as JSON objects. Left are those with control characters."""
    view, present = own_view(values), _present(values)
    offsets, left = np.empty(len(values) + 1, np.int32), np.zeros(len(values), np.bool_)
    out = np.empty(int(view.offsets[-1]) + 2 * len(values), np.uint8)
    _write_hstores(view.data, view.offsets, present, offsets, out, left)
    return PrintedTexts(text_array(offsets, out, mask_bitmap(present)), np.flatnonzero(left))


def _present(values: pa.StringArray) -> Array:
    return values.is_valid().to_numpy(zero_copy_only=False)


@kernel
def _is_moment(data: Array, start: Any, end: Any, fixed: Any, digits: Any, zoned: Any) -> Any:
    size = end - start - (3 if zoned else 0)
    if size < fixed or size == fixed + 1 or size > fixed + (digits + 1 if digits else 0):
        return False
    if zoned and (byte(data, end - 3) != 43 or byte(data, end - 2) != 48 or byte(data, end - 1) != 48):
        return False
    # `infinity`, `10000-01-01 00:00:00` and `0044-03-15 00:00:00 BC` are others.
    if fixed == CLOCK:
        return byte(data, start + 2) == 58
    return byte(data, start + 4) == 45 and byte(data, end - 1) != 67


@kernel
def _write_moments(
    data: Array, indexes: Array, present: Array, fixed: Any, digits: Any, zoned: Any, offsets: Array, out: Array
) -> None:
    o = 0
    for r in range(present.size):
        offsets[r] = o
        if not present[r]:
            continue
        start, end = np.int64(indexes[r]), np.int64(indexes[r + 1])
        if not _is_moment(data, start, end, fixed, digits, zoned):
            o = copy(out, o, data, start, end - start)
            continue
        size = end - start - (3 if zoned else 0)
        o = copy(out, o, data, start, size)
        if zoned:
            out[U(o - size + 10)] = 84
        if digits:
            if size == fixed:
                out[U(o)] = 46
                o += 1
                size += 1
            for _ in range(fixed + 1 + digits - size):
                out[U(o)] = 48
                o += 1
        if zoned:
            out[U(o)] = 90
            o += 1
    offsets[present.size] = o


@kernel
def _write_base64(data: Array, indexes: Array, present: Array, skip: Any, offsets: Array, out: Array) -> Any:
    o = 0
    for r in range(present.size):
        offsets[r] = o
        if not present[r]:
            continue
        i, end = np.int64(indexes[r]) + skip, np.int64(indexes[r + 1])
        if end < i or (end - i) % 2:
            return False
        while i < end:
            bits, size = 0, 0
            while size < 3 and i < end:
                two = (HEX[byte(data, i)] << 4) | HEX[byte(data, i + 1)]
                if two < 0:
                    return False
                bits |= two << (16 - 8 * size)
                size += 1
                i += 2
            out[U(o)] = SIXTY_FOUR[U(bits >> 18)]
            out[U(o + 1)] = SIXTY_FOUR[U((bits >> 12) & 63)]
            out[U(o + 2)] = SIXTY_FOUR[U((bits >> 6) & 63)] if size > 1 else 61
            out[U(o + 3)] = SIXTY_FOUR[U(bits & 63)] if size > 2 else 61
            o += 4
    offsets[present.size] = o
    return True


@kernel
def _put_quoted(data: Array, i: Any, end: Any, out: Array, o: Any) -> Any:
    """Copy a text in quotes, which JSON escapes alike; where it ends, negative where it is of another form."""
    out[U(o)] = 34
    o += 1
    i += 1
    while i < end:
        c = byte(data, i)
        out[U(o)] = c
        o += 1
        i += 1
        if c == 34:
            return i
        if c < 32:
            return -1
        if c == 92:
            if i >= end or (byte(data, i) != 34 and byte(data, i) != 92):
                return -1
            out[U(o)] = byte(data, i)
            o += 1
            i += 1
    return -1


@kernel
def _is_null(data: Array, i: Any, size: Any) -> Any:
    return (
        size == 4
        and byte(data, i) == 78
        and byte(data, i + 1) == 85
        and byte(data, i + 2) == 76
        and byte(data, i + 3) == 76
    )


@kernel
def _put_null(out: Array, o: Any) -> Any:
    out[U(o)] = 110
    out[U(o + 1)] = 117
    out[U(o + 2)] = 108
    out[U(o + 3)] = 108
    return o + 4


@kernel
def _put_array(data: Array, i: Any, end: Any, delimiter: Any, quoted: Any, out: Array, o: Any) -> Any:
    """Write one array; the index after it, negative where it is of another form."""
    depth, state = 0, _OPENED
    while i < end:
        c = byte(data, i)
        if c == 123 and state != _ITEM:
            out[U(o)] = 91
            depth, state = depth + 1, _OPENED
        elif depth == 0:
            return -1
        elif c == 125 and state != _DELIMITER:
            out[U(o)] = 93
            depth, state = depth - 1, _ITEM
        elif c == delimiter and state == _ITEM:
            out[U(o)] = 44
            state = _DELIMITER
        elif state == _ITEM or (c == 34 and not quoted):
            return -1
        elif c == 34:
            after = _put_quoted(data, i, end, out, o)
            if after < 0:
                return -1
            o += after - i
            i, state = after, _ITEM
            continue
        else:
            first = i
            while i < end:
                c = byte(data, i)
                if c == 123 or c == 125 or c == delimiter:
                    break
                if c < 32 or c == 34 or c == 92:
                    return -1
                i += 1
            if i == first:
                return -1
            if _is_null(data, first, i - first):
                o = _put_null(out, o)
            elif quoted:
                out[U(o)] = 34
                o = copy(out, o + 1, data, first, i - first)
                out[U(o)] = 34
                o += 1
            else:
                o = copy(out, o, data, first, i - first)
            state = _ITEM
            continue
        o += 1
        i += 1
    return o if depth == 0 else -1


@kernel
def _write_arrays(
    data: Array, indexes: Array, present: Array, delimiter: Any, quoted: Any, offsets: Array, out: Array, left: Array
) -> None:
    o = 0
    for r in range(present.size):
        offsets[r] = o
        if not present[r]:
            continue
        start, end = np.int64(indexes[r]), np.int64(indexes[r + 1])
        after = -1
        if start < end and byte(data, start) == 123:
            after = _put_array(data, start, end, delimiter, quoted, out, o)
        if after < 0:
            left[r] = True
        else:
            o = after
    offsets[present.size] = o


@kernel
def _put_hstore(data: Array, i: Any, end: Any, out: Array, o: Any) -> Any:
    """Write one hstore; the index after it, negative where it is of another form."""
    out[U(o)] = 123
    o += 1
    while i < end:
        after = _put_quoted(data, i, end, out, o) if byte(data, i) == 34 else -1
        if after < 0 or after + 2 >= end or byte(data, after) != 61 or byte(data, after + 1) != 62:
            return -1
        o += after - i
        i = after + 2
        out[U(o)] = 58
        o += 1
        if byte(data, i) == 34:
            after = _put_quoted(data, i, end, out, o)
            if after < 0:
                return -1
            o += after - i
            i = after
        elif i + 4 <= end and _is_null(data, i, 4):
            o = _put_null(out, o)
            i += 4
        else:
            return -1
        if i == end:
            break
        if i + 2 >= end or byte(data, i) != 44 or byte(data, i + 1) != 32:
            return -1
        out[U(o)] = 44
        o += 1
        i += 2
    out[U(o)] = 125
    return o + 1


@kernel
def _write_hstores(data: Array, indexes: Array, present: Array, offsets: Array, out: Array, left: Array) -> None:
    o = 0
    for r in range(present.size):
        offsets[r] = o
        if not present[r]:
            continue
        after = _put_hstore(data, np.int64(indexes[r]), np.int64(indexes[r + 1]), out, o)
        if after < 0:
            left[r] = True
        else:
            o = after
    offsets[present.size] = o
