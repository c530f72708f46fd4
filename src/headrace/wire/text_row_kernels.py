"""Rows of MySQL's text protocol: where their values are, and the values one after another.

A row is a packet of its own: three bytes of its length and its number, then for each column the length and the text, or
a single byte for NULL. Nothing is taken for granted: each value ends in its row, and each row is used up exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, U, byte, copy, is_utf8, put_base64, set_bit

AS_IT_IS, TEXT, NUMBER, BASE64, INSTANT, MADE = range(6)
"""What is done to a column: copied; copied where it is UTF-8; without leading zeros; written in base64; a moment in UTC
with `T` and `Z`; taken from elsewhere."""
MORE, FULL, OTHER = range(3)
"""Why the search for rows ended: a packet is cut, there is no room for more, or a packet is none of a row's."""
NULL = -1
"""The length of a value that is NULL."""
_HEADER = 4
_LONGEST = 0xFFFFFF
_END, _ERROR = 0xFE, 0xFF
_END_BYTES = 9
_DAY_BYTES, _MOMENT_BYTES = 10, 19


@kernel
def find_rows(data: Array, begin: Any, starts: Array, ends: Array, rows: Array) -> None:
    """Find rows.

    Args:
        data: bytes that a server sent; `begin` is where a packet begins.
        starts, ends: room for where rows begin and end.
        rows: gets how many there are, where the packet behind them begins, and why the search ended.
    """
    i, count, why = begin, 0, MORE
    while i + _HEADER <= data.size:
        size = np.int64(byte(data, i)) | np.int64(byte(data, i + 1)) << 8 | np.int64(byte(data, i + 2)) << 16
        after = i + _HEADER + size
        if size == _LONGEST:
            why = OTHER
            break
        if after > data.size:
            break
        first = np.int64(byte(data, i + _HEADER)) if size else np.int64(0)
        if first == _ERROR or (first == _END and size < _END_BYTES):
            why = OTHER
            break
        if count == starts.size:
            why = FULL
            break
        starts[count] = i + _HEADER
        ends[count] = after
        count += 1
        i = after
    rows[0], rows[1], rows[2] = count, i, why


@kernel
def find_values(data: Array, starts: Array, ends: Array, columns: Any, indexes: Array, sizes: Array) -> Any:
    """Find the values of rows, row after row.

    Args:
        data: what the rows are in.
        starts, ends: where they begin and end.
        columns: how many values each has.
        indexes, sizes: get where each value begins, and how many bytes it has.

    Returns:
        The number of the first row that is none; negative without such.
    """
    at = 0
    for r in range(starts.size):
        i, end = starts[r], ends[r]
        for _ in range(columns):
            if i >= end:
                return r
            first = np.int64(byte(data, i))
            i += 1
            size = np.int64(0)
            if first < 251:
                size = first
            elif first == 251:
                size = np.int64(NULL)
            elif first == 255:
                return r
            else:
                width = 2 if first == 252 else 3 if first == 253 else 8
                if i + width > end:
                    return r
                for k in range(width):
                    size |= np.int64(byte(data, i + k)) << (8 * k)
                i += width
                if size < 0:
                    return r
            indexes[at], sizes[at] = i, size
            if size > 0:
                if size > end - i:
                    return r
                i += size
            at += 1
        if i != end:
            return r
    return -1


@kernel
def copy_column(
    data: Array, indexes: Array, sizes: Array, column: Any, columns: Any, offsets: Array, valid: Array, out: Array
) -> None:
    o = 0
    for r in range(offsets.size - 1):
        offsets[r] = o
        size = sizes[r * columns + column]
        if size != NULL:
            set_bit(valid, r)
            o = copy(out, o, data, indexes[r * columns + column], size)
    offsets[offsets.size - 1] = o


@kernel
def copy_values(
    data: Array,
    indexes: Array,
    sizes: Array,
    kinds: Array,
    source_of: Array,
    made_data: Array,
    made_offsets: Array,
    made_valid: Array,
    offsets: Array,
    valid: Array,
    out: Array,
) -> Any:
    """Copy the values of rows, row after row.

    Args:
        data: what the values are in.
        indexes, sizes: of each.
        kinds: what is done to each column.
        source_of: of a column that is taken from elsewhere, which of these it is.
        made_data, made_offsets, made_valid: those columns, one after another, and which of their values are there.
        offsets, valid, out: get the values.

    Returns:
        The number of the first value that is not of its column's kind; negative without such.
    """
    o, columns = 0, kinds.size
    rows = sizes.size // columns
    for r in range(rows):
        for c in range(columns):
            at = r * columns + c
            offsets[at] = o
            kind = kinds[c]
            if kind == MADE:
                m = source_of[c] * rows + r
                if made_valid[m]:
                    set_bit(valid, at)
                    o = copy(out, o, made_data, made_offsets[m], made_offsets[m + 1] - made_offsets[m])
                continue
            i, size = indexes[at], sizes[at]
            if size == NULL:
                continue
            set_bit(valid, at)
            if kind == TEXT and not is_utf8(data, i, i + size):
                return at
            if kind == NUMBER:
                if size > 1 and byte(data, i) == 45:
                    o = copy(out, o, data, i, 1)
                    i += 1
                    size -= 1
                while size > 1 and byte(data, i) == 48 and byte(data, i + 1) != 46:
                    i += 1
                    size -= 1
            elif kind == INSTANT:
                if size < _MOMENT_BYTES:
                    return at
                o = copy(out, o, data, i, size)
                out[U(o - size + _DAY_BYTES)] = 84
                out[U(o)] = 90
                o += 1
                continue
            o = put_base64(out, o, data, i, size) if kind == BASE64 else copy(out, o, data, i, size)
    offsets[rows * columns] = o
    return -1
