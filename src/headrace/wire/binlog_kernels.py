"""Kernels over events of MySQL's binary log: where each begins, and the values of rows events as canonical texts.

The events of a block lie in one array of bytes. A rows event has images, one after another, whose values have no
types of their own: the table's map says how long each is. `find_rows` walks them and looks at every length before it
uses it, so that a wrong map gives an error. `write_texts` writes what it found.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace.wire.canonical import put_day, put_number
from headrace.wire.cell_kernels import ABSENT, NULL, Cells
from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, U, byte, copy, is_utf8, put_base64, put_integer

HEADER = 19
"""The bytes in front of an event's body."""
WRITE, UPDATE, DELETE, PARTIAL_UPDATE = 30, 31, 32, 39
"""Rows events of the second version; those of the first have numbers that are less by `_VERSIONS`."""
_VERSIONS, _OLDEST = 7, 23
_POST_HEADER = 8
CUT_OFF, WIDTH, EMPTY, LEFT_OVER, KIND, VALUE = range(1, 7)
"""What is wrong with an event: `Wrong.reason`."""

(
    LEAVE, JSON, SIGNED, UNSIGNED, DECIMAL, YEAR, DATE, TIME, DATETIME, TIMESTAMP, OLD_TIME, OLD_DATETIME,
    OLD_TIMESTAMP, FLAG, BITS, UTF8, BYTES, ENUM, UUID,
) = range(19)  # fmt: skip
"""What a column's values are. The kernels leave the first two as they are."""
_DIGIT_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
_POWERS = np.array([10**n for n in range(10)], np.int64)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


class Shapes(NamedTuple):
    """The columns of all tables, one table after the other.

    Args:
        firsts: where each table's begin, and where the last one's end.
        sizes: how many bytes a value has; -1 to -4 where so many bytes in front of it say so.
        forms: what the values are.
        firsts_of, seconds: of a decimal its digits and its scale; of times the fraction digits; of bytes how many they
            are padded to; of an enum how many labels it has and where its first one stands in `labels`.
        rooms: how many bytes a text takes at the most, but for what grows with the value.
        labels: where each label begins in the text of all, and where the last one ends.
        documents: how many columns of each table are JSON.
    """

    firsts: Array
    sizes: Array
    forms: Array
    firsts_of: Array
    seconds: Array
    rooms: Array
    labels: Array
    documents: Array


class Events(NamedTuple):
    """Rows events.

    Args:
        starts: where the body of each begins.
        ends: where it ends, without a checksum.
        kinds: their types.
        tables: the number of each one's table.
    """

    starts: Array
    ends: Array
    kinds: Array
    tables: Array


class FilledRows(NamedTuple):
    """What `find_rows` fills; nothing of it but `rows` when it only counts.

    Args:
        rows: how many rows each event has.
        old, new: the numbers of each row's images; -1 for none.
        cells: the values.
        partial: the cells that hold differences to the JSON of the image before.
        wrong: the event, the index in the bytes, the column or -1, and the reason.
    """

    rows: Array
    old: Array
    new: Array
    cells: Cells
    partial: Array
    wrong: Array


@kernel
def find_rows(data: Array, events: Events, shapes: Shapes, fill: Any, filled: FilledRows) -> Any:
    """Walk the images of rows events.

    Args:
        data: the bytes.
        events: those events.
        shapes: the columns of their tables.
        fill: whether all is filled; else only counted.
        filled: what is filled.

    Returns:
        How many images, values and values that are differences there are. The first is -1 where an event is wrong.
    """
    images, values, rows, partial = np.int64(0), np.int64(0), 0, np.int64(0)
    for e in range(events.starts.size):
        i, end, table = events.starts[e], events.ends[e], events.tables[e]
        filled.wrong[0], filled.wrong[1], filled.wrong[2] = e, i, -1
        first, width = shapes.firsts[table], shapes.firsts[table + 1] - shapes.firsts[table]
        if end > data.size or i + _POST_HEADER > end:
            filled.wrong[3] = CUT_OFF
            return np.int64(-1), values, partial
        kind = np.int64(events.kinds[e])
        i += _POST_HEADER
        if _OLDEST <= kind < _OLDEST + 3:
            kind += _VERSIONS
        else:
            # What the second version has besides begins with its own length.
            extra = _little(data, i, 2) if i + 2 <= end else np.int64(0)
            if extra < 2 or extra > end - i:
                filled.wrong[3] = CUT_OFF
                return np.int64(-1), values, partial
            i += extra
        if kind != WRITE and kind != UPDATE and kind != DELETE and kind != PARTIAL_UPDATE:
            filled.wrong[3] = KIND
            return np.int64(-1), values, partial
        has_two = kind == UPDATE or kind == PARTIAL_UPDATE
        i, columns = _packed(data, i, end)
        bits = (width + 7) >> 3
        if i < 0 or columns != width:
            filled.wrong[3] = WIDTH
            return np.int64(-1), values, partial
        if i + bits * (2 if has_two else 1) > end:
            filled.wrong[3] = CUT_OFF
            return np.int64(-1), values, partial
        given = i
        i += bits * (2 if has_two else 1)
        if i == end:
            filled.wrong[1], filled.wrong[3] = i, EMPTY
            return np.int64(-1), values, partial
        count = 0
        while i < end:
            begin = i
            if fill:
                filled.old[U(rows)] = images if kind != WRITE else -1
                filled.new[U(rows)] = -1 if kind == DELETE else images + (1 if has_two else 0)
            for k in range(2 if has_two else 1):
                changes = np.int64(-1)
                if kind == PARTIAL_UPDATE and k == 1:
                    i, changes = _value_options(data, i, end, shapes.documents[table])
                if i >= 0:
                    if fill:
                        filled.cells.tables[U(images)], filled.cells.firsts[U(images)] = table, values
                    i, partial = _image(
                        data, i, end, given + bits * k, changes, first, width, values, shapes, fill, partial, filled
                    )
                if i < 0:
                    filled.wrong[3] = CUT_OFF
                    return np.int64(-1), values, partial
                images += 1
                values += width
            if i == begin:
                # Bytes are left, and rows take none of them.
                filled.wrong[1], filled.wrong[3] = i, LEFT_OVER
                return np.int64(-1), values, partial
            rows += 1
            count += 1
        if not fill:
            filled.rows[e] = count
    if fill:
        filled.cells.firsts[U(images)] = values
    return images, values, partial


@kernel
def _value_options(data: Array, i: Any, end: Any, documents: Any) -> Any:
    """What stands in front of an image of a partial update: the index after it, and where its bits are or -1."""
    i, options = _packed(data, i, end)
    if i < 0 or options > 1:
        return np.int64(-1), np.int64(-1)
    if options == 0:
        return i, np.int64(-1)
    size = (documents + 7) >> 3
    return (i + size, i) if i + size <= end else (np.int64(-1), np.int64(-1))


@kernel
def _image(
    data: Array,
    i: Any,
    end: Any,
    given: Any,
    changes: Any,
    first: Any,
    width: Any,
    cell: Any,
    shapes: Shapes,
    fill: Any,
    partial: Any,
    rows: FilledRows,
) -> Any:
    """The values of one image: the index after it, -1 where it is cut off, and how many differences there are."""
    present = 0
    for c in range(width):
        if byte(data, given + (c >> 3)) >> (c & 7) & 1:
            present += 1
    nulls = i
    i += (present + 7) >> 3
    if i > end:
        return np.int64(-1), partial
    index, document = 0, 0
    for c in range(width):
        column = U(first + c)
        is_change = False
        if changes >= 0 and shapes.forms[column] == JSON:
            is_change = byte(data, changes + (document >> 3)) >> (document & 7) & 1 != 0
            document += 1
        if not byte(data, given + (c >> 3)) >> (c & 7) & 1:
            if fill:
                rows.cells.sizes[U(cell + c)] = ABSENT
            continue
        is_null = byte(data, nulls + (index >> 3)) >> (index & 7) & 1
        index += 1
        if is_null:
            if fill:
                rows.cells.sizes[U(cell + c)] = NULL
            continue
        size = shapes.sizes[column]
        if size < 0:
            if i - size > end:
                rows.wrong[1], rows.wrong[2] = i, c
                return np.int64(-1), partial
            i, size = i - size, _little(data, i, -size)
        if size > end - i:
            rows.wrong[1], rows.wrong[2] = i, c
            return np.int64(-1), partial
        if fill:
            rows.cells.starts[U(cell + c)] = i
            rows.cells.sizes[U(cell + c)] = size
            if is_change:
                rows.partial[U(partial)] = cell + c
        if is_change:
            partial += 1
        i += size
    return i, partial


@kernel
def _little(data: Array, i: Any, size: Any) -> Any:
    """A little-endian number of up to 8 bytes."""
    value = np.int64(0)
    for k in range(size):
        value |= np.int64(byte(data, i + k)) << (8 * k)
    return value


@kernel
def _big(data: Array, i: Any, size: Any) -> Any:
    """A big-endian number of up to 8 bytes."""
    value = np.int64(0)
    for k in range(size):
        value = (value << 8) | np.int64(byte(data, i + k))
    return value


@kernel
def _packed(data: Array, i: Any, end: Any) -> Any:
    """The index after a number that says its own length, and the number; -1 where it is cut off."""
    if i >= end:
        return np.int64(-1), np.int64(0)
    first = np.int64(byte(data, i))
    if first < 251:
        return i + 1, first
    size = np.int64(2) if first == 252 else (np.int64(3) if first == 253 else np.int64(8))
    if first == 251 or first == 255 or i + 1 + size > end:
        return np.int64(-1), np.int64(0)
    return i + 1 + size, _little(data, i + 1, size)


@kernel
def measure_texts(cells: Cells, shapes: Shapes) -> Any:
    """How many bytes the texts take at the most that `write_texts` writes."""
    room = 0
    for image in range(cells.tables.size):
        first, cell = shapes.firsts[cells.tables[image]], cells.firsts[image]
        for c in range(cells.firsts[image + 1] - cell):
            size = cells.sizes[U(cell + c)]
            if size >= 0:
                room += shapes.rooms[U(first + c)]
                if shapes.forms[U(first + c)] == BYTES:
                    room += (size + 2) // 3 * 4
    return room


@kernel
def write_texts(data: Array, o: Any, labels: Any, cells: Cells, shapes: Shapes, wrong: Array) -> Any:
    """Write the canonical texts of values after the bytes of the events, and let the cells be where they stand.

    Args:
        data: the bytes of the events and all labels, and room behind them.
        o: where the room begins.
        labels: where the labels begin.
        cells: the values.
        shapes: the columns.
        wrong: the number of an image, and of its column, with a value that is none of its type.

    Returns:
        The index after the texts, or -1.
    """
    for image in range(cells.tables.size):
        first, cell = shapes.firsts[cells.tables[image]], cells.firsts[image]
        for c in range(cells.firsts[image + 1] - cell):
            size = cells.sizes[U(cell + c)]
            form = shapes.forms[U(first + c)]
            if size < 0 or form <= JSON:
                continue
            i = cells.starts[U(cell + c)]
            after = o
            begin = o
            if form == SIGNED:
                value = _little(data, i, size)
                shift = 64 - 8 * size
                after = put_integer(data, o, value << shift >> shift)
            elif form == UNSIGNED:
                after = put_integer(data, o, U(_little(data, i, size)))
            elif form == UTF8:
                if not is_utf8(data, i, i + size):
                    after = -1
            elif form == ENUM:
                value = _little(data, i, size)
                if value > shapes.firsts_of[U(first + c)]:
                    after = -1
                else:
                    cells.sizes[U(cell + c)] = 0
                    if value > 0:
                        label = U(shapes.seconds[U(first + c)] + value - 1)
                        cells.starts[U(cell + c)] = labels + shapes.labels[label]
                        cells.sizes[U(cell + c)] = shapes.labels[label + U(1)] - shapes.labels[label]
            elif form == DECIMAL:
                begin, after = _put_decimal(data, o, i, shapes.firsts_of[U(first + c)], shapes.seconds[U(first + c)])
            elif form == YEAR:
                year = np.int64(byte(data, i))
                after = put_integer(data, o, year + 1900 if year > 0 else 0)
            elif form == DATE:
                packed = _little(data, i, 3)
                after = _put_date(data, o, packed >> 9, packed >> 5 & 15, packed & 31)
            elif form == DATETIME:
                after = _put_datetime(data, o, i, shapes.firsts_of[U(first + c)])
            elif form == TIMESTAMP:
                digits = shapes.firsts_of[U(first + c)]
                after = _put_instant(data, o, _big(data, i, 4), _big(data, i + 4, size - 4), digits)
            elif form == TIME:
                after = _put_time(data, o, i, size, shapes.firsts_of[U(first + c)])
            elif form == OLD_TIMESTAMP:
                after = _put_instant(data, o, _little(data, i, 4), 0, 0)
            elif form == OLD_DATETIME:
                value = _little(data, i, 8)
                day, clock = value // 1000000, value % 1000000
                after = -1
                if value >= 0:
                    after = _put_date(data, o, day // 10000, day // 100 % 100, day % 100)
                if after >= 0:
                    data[U(after)] = 32
                    after = _put_clock(data, after + 1, clock // 10000, 23, clock // 100 % 100, clock % 100)
            elif form == OLD_TIME:
                value = _little(data, i, 3) << 40 >> 40
                if value < 0:
                    data[U(o)] = 45
                    after += 1
                    value = -value
                after = _put_clock(data, after, value // 10000, 838, value // 100 % 100, value % 100)
            elif form == FLAG:
                after = _put_flag(data, o, byte(data, i) != 0)
            elif form == BITS:
                room = o + (size + 2) // 3 * 4
                for k in range(size):
                    data[U(room + k)] = byte(data, i + size - 1 - k)
                after = put_base64(data, o, data, room, size)
            elif form == BYTES:
                padded = shapes.firsts_of[U(first + c)]
                if size >= padded:
                    after = put_base64(data, o, data, i, size)
                else:
                    room = o + (padded + 2) // 3 * 4
                    _put_padded(data, room, i, size, padded)
                    after = put_base64(data, o, data, room, padded)
            elif form == UUID:
                after = -1 if size > 16 else _put_uuid(data, o, i, size)
            if after < 0:
                wrong[0], wrong[1] = image, c
                return after
            if form != UTF8 and form != ENUM:
                cells.starts[U(cell + c)] = begin
                cells.sizes[U(cell + c)] = after - begin
                o = after
    return o


@kernel
def _put_padded(data: Array, o: Any, i: Any, size: Any, padded: Any) -> None:
    copy(data, o, data, i, size)
    for k in range(size, padded):
        data[U(o + k)] = 0


@kernel
def _put_flag(data: Array, o: Any, flag: Any) -> Any:
    if flag:
        data[U(o)], data[U(o + 1)], data[U(o + 2)] = 116, 114, 117
        o += 3
    else:
        data[U(o)], data[U(o + 1)], data[U(o + 2)], data[U(o + 3)] = 102, 97, 108, 115
        o += 4
    data[U(o)] = 101
    return o + 1


@kernel
def _put_uuid(data: Array, o: Any, i: Any, size: Any) -> Any:
    for k in range(16):
        if k == 4 or k == 6 or k == 8 or k == 10:
            data[U(o)] = 45
            o += 1
        value = np.int64(byte(data, i + k)) if k < size else 0
        data[U(o)], data[U(o + 1)] = _HEX[U(value >> 4)], _HEX[U(value & 15)]
        o += 2
    return o


@kernel
def _put_decimal(data: Array, o: Any, i: Any, precision: Any, scale: Any) -> Any:
    """Write a decimal: where it begins, and the index after it or -1."""
    negative = byte(data, i) < 128
    flip = 255 if negative else 0
    whole = precision - scale
    size = whole // 9 * 4 + _DIGIT_BYTES[U(whole % 9)] + scale // 9 * 4 + _DIGIT_BYTES[U(scale % 9)]
    begin, is_zero, started = o, True, False
    for part in range(2):
        digits = scale if part else whole
        if part:
            if not started:
                data[U(o)] = 48
                o += 1
            if scale == 0:
                break
            data[U(o)] = 46
            o += 1
        elif negative:
            data[U(o)] = 45
            o += 1
        # The digits that fill no group of nine stand first before the point, and last after it.
        rest, groups = digits % 9, digits // 9
        for g in range(groups + 1):
            is_rest = g == (groups if part else 0)
            count = rest if is_rest else 9
            if count == 0:
                continue
            bytes_of = _DIGIT_BYTES[U(count)]
            value = np.int64(0)
            for k in range(bytes_of):
                b = np.int64(byte(data, i + k)) ^ flip
                if size > 0:
                    b ^= 128
                    size = np.int64(0)
                value = (value << 8) | b
            i += bytes_of
            if value >= _POWERS[U(count)]:
                return begin, np.int64(-1)
            if value > 0:
                is_zero = False
            if part or started:
                o = put_number(data, o, value, count)
            elif value > 0:
                o = put_number(data, o, value, 1)
                started = True
    return (begin + 1 if negative and is_zero else begin), o


@kernel
def _put_date(data: Array, o: Any, year: Any, month: Any, day: Any) -> Any:
    if year > 9999 or month > 12 or day > 31:
        return np.int64(-1)
    o = _put_two(data, _put_two(data, o, year // 100), year % 100)
    data[U(o)] = 45
    o = _put_two(data, o + 1, month)
    data[U(o)] = 45
    return _put_two(data, o + 1, day)


@kernel
def _put_two(data: Array, o: Any, value: Any) -> Any:
    data[U(o)], data[U(o + 1)] = 48 + value // 10, 48 + value % 10
    return o + 2


@kernel
def _put_clock(data: Array, o: Any, hour: Any, most: Any, minute: Any, second: Any) -> Any:
    if hour > most or minute > 59 or second > 59:
        return np.int64(-1)
    if hour > 99:
        data[U(o)] = 48 + hour // 100
        o += 1
        hour = hour % 100
    o = _put_two(data, o, hour)
    data[U(o)] = 58
    o = _put_two(data, o + 1, minute)
    data[U(o)] = 58
    return _put_two(data, o + 1, second)


@kernel
def _put_fraction(data: Array, o: Any, fraction: Any, digits: Any) -> Any:
    """Write the fraction of a second, which has one digit more than it shows where their number is odd."""
    if digits == 0:
        return o
    if digits & 1:
        if fraction % 10:
            return np.int64(-1)
        fraction //= 10
    if fraction >= _POWERS[U(digits)]:
        return np.int64(-1)
    data[U(o)] = 46
    return put_number(data, o + 1, fraction, digits)


@kernel
def _put_datetime(data: Array, o: Any, i: Any, digits: Any) -> Any:
    packed = _big(data, i, 5) - 0x8000000000
    if packed < 0:
        return np.int64(-1)
    months = packed >> 22
    o = _put_date(data, o, months // 13, months % 13, packed >> 17 & 31)
    if o < 0:
        return o
    data[U(o)] = 32
    o = _put_clock(data, o + 1, packed >> 12 & 31, 23, packed >> 6 & 63, packed & 63)
    return o if o < 0 else _put_fraction(data, o, _big(data, i + 5, (digits + 1) >> 1), digits)


@kernel
def _put_instant(data: Array, o: Any, seconds: Any, fraction: Any, digits: Any) -> Any:
    is_zero = seconds == 0 and fraction == 0
    o = _put_date(data, o, 0, 0, 0) if is_zero else put_day(data, o, seconds // 86400)
    data[U(o)] = 84
    clock = seconds % 86400
    o = _put_clock(data, o + 1, clock // 3600, 23, clock // 60 % 60, clock % 60)
    o = _put_fraction(data, o, fraction, digits)
    if o >= 0:
        data[U(o)] = 90
        o += 1
    return o


@kernel
def _put_time(data: Array, o: Any, i: Any, size: Any, digits: Any) -> Any:
    # The fraction stands in the low bytes of one number, which is negative as a whole.
    packed = _big(data, i, size) - (np.int64(128) << (8 * (size - 1)))
    if packed < 0:
        data[U(o)] = 45
        o += 1
        packed = -packed
    low = 8 * (size - 3)
    fraction = packed & ((np.int64(1) << low) - 1)
    packed >>= low
    o = _put_clock(data, o, packed >> 12, 838, packed >> 6 & 63, packed & 63)
    return o if o < 0 else _put_fraction(data, o, fraction, digits)
